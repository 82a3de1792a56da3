// Reads parts without trusting any size in them. Fields are counted before protobuf allocates memory for
// them, every product is checked for overflow, and every byte that the writer would not have written is an
// error.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/job_syntax.h"
#include "core/part.h"
#include "core/part_prefix.h"
#include "core/part_tokens.h"
#include "core/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "proto/part.pb.h"

namespace evenkeel {
namespace {

using google::protobuf::internal::WireFormatLite;

template <typename... Args>
absl::Status Damaged(const Args&... args) {
  return absl::DataLossError(absl::StrCat("part: ", args...));
}

uint32_t GetU32(std::span<const std::byte> bytes, size_t at) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | std::to_integer<uint32_t>(bytes[at + i]);
  return value;
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

// Checks the prefix (magic, version, size of the header, a reserved word) and returns the bytes of the
// header.
absl::StatusOr<std::span<const std::byte>> FindHeader(std::span<const std::byte> part) {
  if (part.size() < kPartPrefixBytes) return Damaged(part.size(), " bytes are shorter than the prefix of 16");
  for (size_t i = 0; i < kPartMagic.size(); ++i) {
    if (std::to_integer<char>(part[i]) != kPartMagic[i]) return Damaged("offset 0: not the magic \"EVKP\"");
  }
  const uint32_t version = GetU32(part, 4);
  if (version < kPlainPartFormat || version > kPartFormatVersion) {
    return Damaged("offset 4: format version ", version, "; this release reads ", kPlainPartFormat, " to ",
                   kPartFormatVersion);
  }
  uint64_t header_bytes = GetU32(part, 8);
  if (GetU32(part, 12) != 0) return Damaged("offset 12: the reserved word is not 0");
  if (header_bytes > kMaxPartHeaderBytes) {
    return Damaged("offset 8: a header of ", header_bytes, " bytes, at most ", kMaxPartHeaderBytes,
                   " are allowed");
  }
  if (AlignPart(kPartPrefixBytes + header_bytes) > part.size()) {
    return Damaged("offset 8: a header of ", header_bytes, " bytes does not fit into ", part.size());
  }
  return part.subspan(kPartPrefixBytes, header_bytes);
}

// Walks over the serialized header and counts tensors and keys. protobuf allocates memory for each of them
// while it parses, so that a damaged header could take many times its own size. Fields that PartHeader does
// not have are an error.
absl::Status CountFields(std::span<const std::byte> header) {
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(header.data()),
                                            static_cast<int>(header.size()));
  size_t tensors = 0;
  size_t keys = 0;
  while (uint32_t tag = in.ReadTag()) {
    int field = WireFormatLite::GetTagFieldNumber(tag);
    if (field < 1 || field > pb::PartHeader::kKeysFieldNumber)
      return Damaged("header: unknown field ", field);
    if (WireFormatLite::GetTagWireType(tag) != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
      if (!WireFormatLite::SkipField(&in, tag)) return Damaged("header: field ", field, " is damaged");
      continue;
    }
    uint32_t length = 0;
    if (!in.ReadVarint32(&length) || length > header.size() || !in.Skip(static_cast<int>(length))) {
      return Damaged("header: field ", field, " is damaged");
    }
    if (field == pb::PartHeader::kKeysFieldNumber && ++keys > kMaxPartKeys) {
      return Damaged("header: more than ", kMaxPartKeys, " keys");
    }
    if (field == pb::PartHeader::kTensorsFieldNumber &&
        (++tensors > kMaxPartTensors || length > kMaxTensorHeaderBytes)) {
      return Damaged("header: more than ", kMaxPartTensors, " tensors, or a tensor described in more than ",
                     kMaxTensorHeaderBytes, " bytes");
    }
  }
  if (!in.ConsumedEntireMessage()) return Damaged("header: damaged tag");
  return absl::OkStatus();
}

absl::StatusOr<pb::PartHeader> ParseHeader(std::span<const std::byte> bytes) {
  EVENKEEL_RETURN_IF_ERROR(CountFields(bytes));
  pb::PartHeader header;
  if (!header.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Damaged("the header is not a PartHeader message");
  }
  return header;
}

absl::StatusOr<PartName> NameOf(const pb::PartHeader& header) {
  if (!IsPhaseName(header.phase())) return Damaged("'", ShortText(header.phase()), "' is not a phase's name");
  if (header.piece() >= header.num_pieces()) {
    return Damaged("piece ", header.piece(), " of ", header.num_pieces(), " does not exist");
  }
  return PartName{Phase(header.phase()), header.step(), header.rank(), header.microbatch(), header.piece()};
}

// Multiplies the dimensions and fails on overflow. Dimensions of zero are left out: otherwise {2^63, 2^63, 0}
// would pass or fail by the order of its dimensions.
absl::Status CheckShape(const TensorSpec& spec) {
  if (spec.shape.size() > kMaxTensorRank) {
    return Damaged("tensor '", spec.name, "' has ", spec.shape.size(), " dimensions, at most ",
                   kMaxTensorRank, " are allowed");
  }
  uint64_t bytes = DTypeBytes(spec.dtype);
  for (uint64_t dimension : spec.shape) {
    if (dimension != 0 && (__builtin_mul_overflow(bytes, dimension, &bytes) || bytes >> 62 != 0)) {
      return Damaged("tensor '", spec.name, "': the shape overflows");
    }
  }
  return absl::OkStatus();
}

// An expansion makes rows of floats from rows of bytes, so its tensor must be u8 with rows of exactly the
// size that the expansion reads, and every value of the table must be a finite number.
absl::Status CheckExpansion(const pb::PixelExpansion& e, const TensorSpec& spec) {
  bool sane = e.channels() >= 1 && e.channels() <= kMaxExpansionChannels && e.frames() >= 1 &&
              e.frames() <= kMaxExpansionFrames && e.patch() >= 1 && e.patch() <= kMaxExpansionPatch &&
              e.patch_width() <= kMaxExpansionPatch &&
              (e.frames_on_wire() == 1 || e.frames_on_wire() == e.frames()) &&
              static_cast<uint64_t>(e.table_size()) == 256ull * e.channels();
  if (!sane) return Damaged("tensor '", spec.name, "': impossible pixel expansion");
  const PixelExpansion form{.patch = e.patch(), .patch_width = e.patch_width()};
  uint64_t width = form.area() * e.channels() * e.frames_on_wire();
  if (spec.dtype != DType::kU8 || spec.shape.size() != 2 || spec.shape[1] != width) {
    return Damaged("tensor '", spec.name, "': an expansion needs u8 rows of ", width, " bytes");
  }
  bool finite = std::all_of(e.table().begin(), e.table().end(), [](float v) { return std::isfinite(v); });
  if (!finite) return Damaged("tensor '", spec.name, "': the expansion's table is not finite");
  return absl::OkStatus();
}

absl::StatusOr<TensorSpec> SpecOf(const pb::TensorHeader& header) {
  if (header.name().empty()) return Damaged("a tensor has no name");
  if (header.name().size() > kMaxTensorNameBytes || !IsPrintable(header.name())) {
    return Damaged("tensor '", ShortText(header.name()), "': a name is at most ", kMaxTensorNameBytes,
                   " printable ASCII characters");
  }
  if (header.dtype() < pb::U8 || header.dtype() > pb::F64) {
    return Damaged("tensor '", header.name(), "': unknown dtype ", static_cast<int>(header.dtype()));
  }
  TensorSpec spec;
  spec.name = header.name();
  spec.dtype = static_cast<DType>(header.dtype());
  spec.shape.assign(header.shape().begin(), header.shape().end());
  EVENKEEL_RETURN_IF_ERROR(CheckShape(spec));
  if (header.has_expansion()) {
    const pb::PixelExpansion& e = header.expansion();
    EVENKEEL_RETURN_IF_ERROR(CheckExpansion(e, spec));
    spec.expansion = std::make_shared<PixelExpansion>(PixelExpansion{e.channels(),
                                                                     e.frames(),
                                                                     e.frames_on_wire(),
                                                                     e.patch(),
                                                                     {e.table().begin(), e.table().end()},
                                                                     e.patch_width()});
  }
  if (header.has_tokens())
    spec.tokens = TokenForm{.padded = header.tokens().padded(), .fields = header.tokens().fields()};
  return spec;
}

// Returns a view of each tensor. A tensor must begin where the previous one ends, rounded up to the
// alignment, and the bytes between must be zero, so that every byte of the payload is checked.
absl::StatusOr<std::vector<TensorView>> ReadTensors(const pb::PartHeader& header,
                                                    std::span<const std::byte> payload) {
  std::vector<TensorView> views;
  std::set<std::string> names;
  uint64_t next = 0;
  for (const pb::TensorHeader& tensor : header.tensors()) {
    EVENKEEL_ASSIGN_OR_RETURN(TensorSpec spec, SpecOf(tensor));
    if (!names.insert(spec.name).second) return Damaged("two tensors are named '", spec.name, "'");
    if (tensor.offset() != next) {
      return Damaged("tensor '", spec.name, "' lies at ", tensor.offset(), " of the payload, expected ",
                     next);
    }
    uint64_t bytes = spec.num_bytes();
    if (bytes > payload.size() - next) {
      return Damaged("tensor '", spec.name, "' ends beyond the payload of ", payload.size(), " bytes");
    }
    uint64_t end = next + bytes;
    next = AlignPart(end);
    if (next > payload.size() || !AllZero(payload.subspan(end, next - end))) {
      return Damaged("the gap behind tensor '", spec.name, "' is not zero");
    }
    views.push_back({.spec = std::move(spec), .wire = payload.subspan(end - bytes, bytes)});
  }
  if (next != payload.size()) {
    return Damaged("the tensors end at ", next, ", the payload at ", payload.size());
  }
  return views;
}

struct Read {
  pb::PartHeader header;
  std::vector<TensorView> tensors;  // as on the wire
  PartName name;
};

absl::StatusOr<Read> ReadWire(std::span<const std::byte> part) {
  EVENKEEL_ASSIGN_OR_RETURN(std::span<const std::byte> bytes, FindHeader(part));
  Read read;
  EVENKEEL_ASSIGN_OR_RETURN(read.header, ParseHeader(bytes));
  EVENKEEL_ASSIGN_OR_RETURN(read.name, NameOf(read.header));
  const uint64_t header_end = kPartPrefixBytes + bytes.size();
  const uint64_t payload_begin = AlignPart(header_end);
  if (!AllZero(part.subspan(header_end, payload_begin - header_end))) {
    return Damaged("offset ", header_end, ": the padding behind the header is not zero");
  }
  if (read.header.payload_bytes() != part.size() - payload_begin) {
    return Damaged("the header announces a payload of ", read.header.payload_bytes(), " bytes, ",
                   part.size() - payload_begin, " are there");
  }
  EVENKEEL_ASSIGN_OR_RETURN(read.tensors, ReadTensors(read.header, part.subspan(payload_begin)));
  return read;
}

}  // namespace

absl::StatusOr<PartLayout> ReadPartLayout(std::span<const std::byte> part) {
  EVENKEEL_ASSIGN_OR_RETURN(Read read, ReadWire(part));
  std::vector<TensorSpec> specs;
  for (TensorView& tensor : read.tensors) specs.push_back(std::move(tensor.spec));
  return PartLayout(read.name, read.header.num_pieces(), std::move(specs),
                    {read.header.keys().begin(), read.header.keys().end()});
}

absl::StatusOr<PartView> ReadPart(std::span<const std::byte> part) {
  EVENKEEL_ASSIGN_OR_RETURN(Read read, ReadWire(part));
  PartView view{
      .name = read.name, .num_pieces = read.header.num_pieces(), .tensors = std::move(read.tensors)};
  EVENKEEL_RETURN_IF_ERROR(PlaceTokenFields(GetU32(part, 4), view.tensors));
  view.keys.assign(read.header.keys().begin(), read.header.keys().end());
  return view;
}

}  // namespace evenkeel
