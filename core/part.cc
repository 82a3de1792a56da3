// Computes the layout of a part, writes its header and digests its tensors. docs/part-format.md defines the
// bytes. part_reader.cc reads parts, pixel_expansion.cc expands u8 pixels.
#include "core/part.h"

#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/part_prefix.h"
#include "proto/part.pb.h"

namespace evenkeel {
namespace {

// Bytes of all keys of samples in a header. Keys only serve error messages, and the header must stay below
// its own limit however long the member names of a shard are.
constexpr uint64_t kMaxKeyBytes = 16ull << 20;

void FillExpansion(const PixelExpansion& from, pb::PixelExpansion* to) {
  to->set_channels(from.channels);
  to->set_frames(from.frames);
  to->set_frames_on_wire(from.frames_on_wire);
  to->set_patch(from.patch);
  to->set_patch_width(from.patch_width);
  to->mutable_table()->Add(from.table.begin(), from.table.end());
}

void FillTensor(const TensorSpec& from, uint64_t offset, pb::TensorHeader* to) {
  to->set_name(from.name);
  to->set_dtype(static_cast<pb::DType>(from.dtype));
  to->mutable_shape()->Add(from.shape.begin(), from.shape.end());
  to->set_offset(offset);
  if (from.expansion != nullptr) FillExpansion(*from.expansion, to->mutable_expansion());
  if (!from.tokens.has_value()) return;
  to->mutable_tokens()->set_padded(from.tokens->padded);
  to->mutable_tokens()->set_fields(from.tokens->fields);
}

// Copies keys until there are kMaxPartKeys. After kMaxKeyBytes bytes the rest are empty, so that the i-th key
// still belongs to the i-th sample.
void FillKeys(std::vector<std::string> keys, pb::PartHeader* header) {
  uint64_t bytes = 0;
  for (std::string& key : keys) {
    if (header->keys_size() == static_cast<int>(kMaxPartKeys)) return;
    bytes += key.size();
    header->add_keys(bytes <= kMaxKeyBytes ? std::move(key) : std::string());
  }
}

// Little-endian, on every machine.
void PutU32(uint32_t value, std::byte* to) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

void Zero(std::span<std::byte> bytes) {
  if (!bytes.empty()) std::memset(bytes.data(), 0, bytes.size());
}

}  // namespace

uint64_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return 1;
    case DType::kBf16:
      return 2;
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return "u8";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kF32:
      return "f32";
    case DType::kBf16:
      return "bf16";
    case DType::kF64:
      return "f64";
  }
  return "unknown";
}

uint64_t TensorSpec::num_elements() const {
  uint64_t elements = 1;
  for (uint64_t dimension : shape) elements *= dimension;
  return elements;
}

std::string DescribePart(const PartName& name) {
  return absl::StrCat("step ", name.step, " ",
                      absl::string_view(PhaseName(name.phase).data(), PhaseName(name.phase).size()), " rank ",
                      name.rank, " microbatch ", name.microbatch, " piece ", name.piece);
}

// Places the tensors one after another, each at the next multiple of kPartAlignment. The header is serialized
// last, since it has the offsets and the size of the payload, and decides where the payload begins.
PartLayout::PartLayout(PartName name, uint32_t num_pieces, std::vector<TensorSpec> tensors,
                       std::vector<std::string> keys)
    : name_(name), tensors_(std::move(tensors)) {
  pb::PartHeader header;
  header.set_phase(std::string(PhaseName(name_.phase)));
  header.set_step(name_.step);
  header.set_rank(name_.rank);
  header.set_microbatch(name_.microbatch);
  header.set_piece(name_.piece);
  header.set_num_pieces(num_pieces);
  for (const TensorSpec& tensor : tensors_) {
    if (tensor.tokens.has_value())
      version_ = tensor.tokens->fields == 0 ? kTokensPartFormat : kFieldsPartFormat;
    offsets_.push_back(payload_bytes_);
    FillTensor(tensor, payload_bytes_, header.add_tensors());
    payload_bytes_ = AlignPart(payload_bytes_ + tensor.num_bytes());
  }
  header.set_payload_bytes(payload_bytes_);
  FillKeys(std::move(keys), &header);
  header_ = header.SerializeAsString();
  payload_begin_ = AlignPart(kPartPrefixBytes + header_.size());
}

// Writes everything but the tensors' elements: magic, version, sizes, header, and zeroes between and behind
// tensors. The gaps are set to zero since memory is reused and the hash of the payload covers them.
void PartLayout::WriteHeader(std::span<std::byte> part) const {
  assert(part.size() == total_bytes());
  std::memcpy(part.data(), kPartMagic.data(), kPartMagic.size());
  PutU32(version_, part.data() + 4);
  PutU32(static_cast<uint32_t>(header_.size()), part.data() + 8);
  PutU32(0, part.data() + 12);
  std::memcpy(part.data() + kPartPrefixBytes, header_.data(), header_.size());
  uint64_t header_end = kPartPrefixBytes + header_.size();
  Zero(part.subspan(header_end, payload_begin_ - header_end));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    uint64_t end = offsets_[i] + tensors_[i].num_bytes();
    uint64_t next = i + 1 < tensors_.size() ? offsets_[i + 1] : payload_bytes_;
    Zero(part.subspan(payload_begin_ + end, next - end));
  }
}

std::span<std::byte> PartLayout::tensor(std::span<std::byte> part, size_t i) const {
  return part.subspan(payload_begin_ + offsets_[i], tensors_[i].num_bytes());
}

std::span<const std::byte> PartLayout::const_tensor(std::span<const std::byte> part, size_t i) const {
  return part.subspan(payload_begin_ + offsets_[i], tensors_[i].num_bytes());
}

// The keys are in the serialized header alone.
PartLayout PartLayout::WithTensors(std::vector<TensorSpec> tensors) const {
  pb::PartHeader header;
  header.ParseFromString(header_);
  return PartLayout(name_, header.num_pieces(), std::move(tensors),
                    {header.keys().begin(), header.keys().end()});
}

const TensorView* PartView::tensor(std::string_view name) const {
  for (const TensorView& candidate : tensors) {
    if (candidate.spec.name == name) return &candidate;
  }
  return nullptr;
}

// Names, shapes and sizes go into the digest with their lengths, so that no two different lists of tensors
// give the same bytes.
void DigestPart(const PartView& part, Digester& digester) {
  for (const TensorView& tensor : part.tensors) {
    digester.UpdateU64(tensor.spec.name.size());
    digester.Update(tensor.spec.name);
    digester.UpdateU64(static_cast<uint64_t>(tensor.spec.dtype));
    digester.UpdateU64(tensor.spec.shape.size());
    for (uint64_t dimension : tensor.spec.shape) digester.UpdateU64(dimension);
    const std::span<const std::byte> bytes = tensor.bytes();
    digester.UpdateU64(bytes.size());
    digester.Update(bytes);
  }
}

}  // namespace evenkeel
