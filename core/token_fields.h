// The fields of an llm part that hold a value for every token, from the 4 bytes that a token takes on the
// wire.
//
// A part carries one 32-bit word per token and, only for samples whose media have positions on a grid, three
// 32-bit positions per token. The fields that a trainer reads are int64 and up to twelve times as large. They
// are computed when they are first read. docs/part-format.md gives the grammar.
//
//   word     bits 0-27 id, 28-29 type, 30 the label is the id, 31 masked
//
//   input_ids          id
//   labels             id where bit 30 is set, else -100
//   attention_mask     0 where bit 31 is set, else 1 (padded only)
//   mm_token_type_ids  type
//   position_ids       the explicit ones inside a span; else 1 if bit 31 is set; else the number of the token
//                      within its document. [3, rows, tokens of a row]
//
// A document is a segment of cu_seqlens (packed), or a row (padded).
//
// Thread safety: TokenFields may be read from many threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"

namespace evenkeel {

inline constexpr int64_t kNoLossLabel = -100;

// One token on the wire. Placeholders are never trained: kTrained with a type is a placeholder of a target, whose type in
// mm_token_type_ids is kTargetType more.
class TokenWord {
 public:
  static constexpr uint32_t kMaxId = (1u << 28) - 1;
  static constexpr uint32_t kMaxType = 3;
  static constexpr int kTypeShift = 28;
  static constexpr uint32_t kTrained = 1u << 30;
  static constexpr uint32_t kMasked = 1u << 31;

  // `id` <= kMaxId, `type` <= kMaxType.
  static constexpr uint32_t Make(uint32_t id, uint32_t type, bool trained, bool masked) {
    return id | type << kTypeShift | (trained ? kTrained : 0) | (masked ? kMasked : 0);
  }
  static constexpr bool IsTrained(uint32_t word) { return TypeAndTrained(word) == kTrained >> kTypeShift; }
  static constexpr bool IsTarget(uint32_t word) { return TypeAndTrained(word) > kTrained >> kTypeShift; }
  // In mm_token_type_ids.
  static constexpr uint32_t TypeOf(uint32_t word) { return IsTrained(word) ? 0 : TypeAndTrained(word); }

 private:
  static constexpr uint32_t TypeAndTrained(uint32_t word) {
    return word >> kTypeShift & (kMaxType | kTrained >> kTypeShift);
  }
};

enum class TokenField : uint8_t { kInputIds, kLabels, kAttentionMask, kPositionIds, kTypes };
inline constexpr size_t kNumTokenFields = 5;
// "input_ids", "labels", "attention_mask", "position_ids", "mm_token_type_ids".
std::string_view TokenFieldName(TokenField field);

// The tensors of a part that token fields are computed from. Views.
struct TokenSource {
  uint64_t rows = 0;
  uint64_t tokens_per_row = 0;
  bool padded = false;                  // rows are documents; there is an attention mask
  std::span<const uint32_t> words;      // [rows * tokens_per_row]
  std::span<const int32_t> cu_seqlens;  // packed: [documents + 1]
  std::span<const int32_t> spans;       // [n][2]: first token, tokens; ascending, apart
  std::span<const int32_t> positions;   // [3][sum of the spans' tokens]
};

// DataLoss where `source` is not what the grammar allows: sizes that disagree, spans or documents that are
// out of order or outside the tokens. Afterwards no value of a word or position can lead outside the tokens.
absl::Status CheckTokenSource(const TokenSource& source);

// Writes field `field` of a checked source. `out`: rows * tokens_per_row values, three times that for
// kPositionIds.
void WriteTokenField(const TokenSource& source, TokenField field, std::span<int64_t> out);

// The fields of one part, computed when they are first read and kept.
class TokenFields {
 public:
  // `source` was checked; the memory that it views must outlive this.
  explicit TokenFields(const TokenSource& source) : source_(source) {}

  // Little-endian int64. The memory is this object's.
  std::span<const std::byte> bytes(TokenField field) const;

 private:
  struct Kept {
    std::once_flag computed;
    std::unique_ptr<int64_t[]> values;
  };

  const TokenSource source_;
  mutable std::array<Kept, kNumTokenFields> kept_;
};

}  // namespace evenkeel
