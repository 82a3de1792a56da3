// The bytes of a part: grammar, writer and reader. docs/part-format.md is the grammar as a document.
//
//   part    := prefix header padding payload
//   prefix  := "EVKP" u32 format_version u32 header_bytes u32 reserved(=0)          (little-endian)
//   header  := header_bytes of a serialised PartHeader (proto/part.proto)
//   padding := zero bytes up to the next multiple of 64 from the start of the part
//   payload := tensors at their offsets, each a multiple of 64 from the payload's start, gaps zero,
//              end rounded up to a multiple of 64
//
// The format version is 2 where a tensor has a token form (core/token_fields.h), 3 where that form has some of the
// fields only, else 1.
//
// Ownership: a PartLayout owns its header; tensors are views of the caller's buffer.
// Thread safety: plain values; disjoint tensors may be written, and a PartView read, from different threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/token_fields.h"
#include "core/words.h"

namespace evenkeel {

enum class DType : uint8_t { kU8 = 1, kI32 = 2, kI64 = 3, kF32 = 4, kBf16 = 5, kF64 = 6 };
uint64_t DTypeBytes(DType dtype);
std::string_view DTypeName(DType dtype);  // "u8", "i32", "i64", "f32", "bf16", "f64"

// The newest format that this release writes and reads; it reads older ones, too. Workers and consumers of
// one run have the same, since the sizes of parts depend on it.
inline constexpr uint32_t kPartFormatVersion = 3;
inline constexpr uint64_t kPartAlignment = 64;
// Rounded up to the alignment.
constexpr uint64_t AlignPart(uint64_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}
inline constexpr uint64_t kMaxPieceBytes = 256ull << 20;
inline constexpr uint64_t kMaxPartHeaderBytes = 64ull << 20;

// See proto/part.proto. `table` is shared by all parts of a processor.
struct PixelExpansion {
  uint32_t channels = 0;
  uint32_t frames = 0;
  uint32_t frames_on_wire = 0;
  uint32_t patch = 0;        // height
  std::vector<float> table;  // [channels * 256]
  uint32_t patch_width = 0;  // 0: patches are squares

  uint64_t area() const { return uint64_t{patch} * (patch_width != 0 ? patch_width : patch); }
  friend bool operator==(const PixelExpansion&, const PixelExpansion&) = default;
};

// Of a tensor of token words: kI32 [rows, tokens of a row], named kTokensName. After it in the part come
// kTokenSpansName, kI32 [n, 2], and kTokenPositionsName, kI32 [3, positions]; packed rows need `cu_seqlens`.
struct TokenForm {
  bool padded = false;
  uint32_t fields = 0;  // a bit for each TokenField that is delivered; 0: all of them
};
inline constexpr std::string_view kTokensName = "tokens";
inline constexpr std::string_view kTokenSpansName = "token_position_spans";
inline constexpr std::string_view kTokenPositionsName = "token_positions";
inline constexpr std::string_view kDocumentsName = "cu_seqlens";

struct TensorSpec {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<uint64_t> shape;
  std::shared_ptr<const PixelExpansion> expansion;  // null: the wire form is the final form
  std::optional<TokenForm> tokens = std::nullopt;   // set: the tensor stands for the token fields

  uint64_t num_elements() const;
  uint64_t num_bytes() const { return num_elements() * DTypeBytes(dtype); }
};

// Which part it is. As read from a part or a message the phase has its name alone.
struct PartName {
  Phase phase;
  uint64_t step = 0;
  uint32_t rank = 0;  // of the phase
  uint32_t microbatch = 0;
  uint32_t piece = 0;

  friend bool operator==(const PartName&, const PartName&) = default;
  friend auto operator<=>(const PartName&, const PartName&) = default;
};

// "step 12 vision rank 3 microbatch 0 piece 1".
std::string DescribePart(const PartName& name);

// Computes offsets and the header. Sizes are final before any byte is written.
class PartLayout {
 public:
  // `keys`: one per item or sample, for messages only.
  PartLayout(PartName name, uint32_t num_pieces, std::vector<TensorSpec> tensors,
             std::vector<std::string> keys);

  uint64_t total_bytes() const { return payload_begin_ + payload_bytes_; }
  uint64_t payload_begin() const { return payload_begin_; }
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  const PartName& name() const { return name_; }
  // The same part, keys included, with other tensors.
  PartLayout WithTensors(std::vector<TensorSpec> tensors) const;

  // Writes prefix, header, and zeroes of every gap. `part` must have total_bytes().
  void WriteHeader(std::span<std::byte> part) const;
  // The bytes of tensor `i` inside `part`.
  std::span<std::byte> tensor(std::span<std::byte> part, size_t i) const;
  std::span<const std::byte> const_tensor(std::span<const std::byte> part, size_t i) const;

 private:
  PartName name_;
  std::vector<TensorSpec> tensors_;
  std::vector<uint64_t> offsets_;  // from the payload's start
  std::string header_;             // serialised
  uint32_t version_ = 1;
  uint64_t payload_begin_ = 0;
  uint64_t payload_bytes_ = 0;
};

// A field as it is delivered. u8 pixels are as on the wire.
struct TensorView {
  TensorSpec spec;
  std::span<const std::byte> wire;            // inside the part; empty for a token field
  std::shared_ptr<const TokenFields> tokens;  // not null: a token field
  TokenField field = TokenField::kInputIds;   // which of them

  // The elements, spec.num_bytes(). A token field is computed on the first call and kept as long as any copy
  // of this view; other fields lie inside the part.
  std::span<const std::byte> bytes() const { return tokens == nullptr ? wire : tokens->bytes(field); }
};

// A parsed part: views into the caller's bytes, which must outlive it.
struct PartView {
  PartName name;
  uint32_t num_pieces = 1;
  std::vector<TensorView> tensors;  // of words and what belongs to them: the token fields, in their place
  std::vector<std::string> keys;

  const TensorView* tensor(std::string_view name) const;  // null where there is none
};

// Never trusts a size: DataLoss for anything that the grammar does not allow. `part` must be aligned to 4
// bytes where it holds token words.
absl::StatusOr<PartView> ReadPart(std::span<const std::byte> part);
// The layout of a part: its tensors as they are on the wire. Checks the header as ReadPart does. DataLoss.
absl::StatusOr<PartLayout> ReadPartLayout(std::span<const std::byte> part);

// Adds names, dtypes, shapes and bytes of the tensors as delivered (never header bytes) to a digest, as
// `fetch
// --digest` defines it: per tensor: u64 name length, name, u64 dtype, u64 rank, u64 dims, u64 length, bytes.
void DigestPart(const PartView& part, Digester& digester);

// Expands u8 patches [rows, channels*frames_on_wire*area] to f32 [rows, channels*frames*area], area = height
// * width of a patch. `out` must have rows * channels*frames*area floats. InvalidArgument where sizes
// disagree.
absl::Status ExpandPixels(const PixelExpansion& expansion, std::span<const std::byte> in,
                          std::span<float> out);

}  // namespace evenkeel
