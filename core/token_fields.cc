// Checks token words and expands them to the int64 fields that models take (input_ids, labels,
// attention_mask, position_ids, mm_token_type_ids). docs/part-format.md has the bits of a word.
//
// Every loop reads one word and writes one int64 without a branch, so that compilers vectorize it.
#include "core/token_fields.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/words.h"

namespace evenkeel {
namespace {

// The bit that marks a target is above the bits of the type.
static_assert(TokenWord::kTrained >> TokenWord::kTypeShift == kTargetType);

// Positions of multimodal rotary embeddings: time, height, width.
constexpr uint64_t kAxes = 3;

template <typename... Args>
absl::Status Damaged(const Args&... args) {
  return absl::DataLossError(absl::StrCat("tokens: ", args...));
}

// Packed tokens are one row. cu_seqlens bounds its documents: it begins at 0, does not descend, and ends at
// the number of tokens.
absl::Status CheckDocuments(const TokenSource& source, uint64_t tokens) {
  if (source.rows != 1) return Damaged(source.rows, " rows; packed tokens are one row");
  const std::span<const int32_t> bounds = source.cu_seqlens;
  if (bounds.empty() || bounds.front() != 0 ||
      static_cast<int64_t>(bounds.back()) != static_cast<int64_t>(tokens)) {
    return Damaged("cu_seqlens must begin at 0 and end at ", tokens, ", the number of tokens");
  }
  if (!std::is_sorted(bounds.begin(), bounds.end())) return Damaged("cu_seqlens must not descend");
  return absl::OkStatus();
}

// Spans are pairs (first token, length) whose positions are explicit, such as those of pictures. They must
// ascend without overlap, and `positions` must have one value per axis for each token in a span.
absl::Status CheckSpans(const TokenSource& source, uint64_t tokens) {
  uint64_t end = 0, covered = 0;
  for (size_t i = 0; i + 1 < source.spans.size(); i += 2) {
    const int64_t begin = source.spans[i], length = source.spans[i + 1];
    if (begin < 0 || length < 0 || static_cast<uint64_t>(begin) < end ||
        static_cast<uint64_t>(begin) + static_cast<uint64_t>(length) > tokens) {
      return Damaged("position span ", i / 2, " has ", length, " tokens from ", begin, "; expected between ",
                     end, " and ", tokens);
    }
    end = static_cast<uint64_t>(begin) + static_cast<uint64_t>(length);
    covered += static_cast<uint64_t>(length);
  }
  if (source.positions.size() != kAxes * covered) {
    return Damaged("the spans need ", kAxes * covered, " positions, there are ", source.positions.size());
  }
  return absl::OkStatus();
}

void CountFromZero(std::span<int64_t> out) {
  int64_t next = 0;
  for (int64_t& value : out) value = next++;
}

// Writes the positions of one axis outside of the spans, which are the same on all axes: they count from 0 in
// every document (packed) or row (padded).
void WriteImpliedPositions(const TokenSource& source, std::span<int64_t> out) {
  if (!source.padded) {
    for (size_t i = 0; i + 1 < source.cu_seqlens.size(); ++i) {
      const auto begin = static_cast<size_t>(source.cu_seqlens[i]);
      CountFromZero(out.subspan(begin, static_cast<size_t>(source.cu_seqlens[i + 1]) - begin));
    }
  } else {
    for (uint64_t row = 0; row < source.rows; ++row) {
      CountFromZero(out.subspan(row * source.tokens_per_row, source.tokens_per_row));
    }
  }
  // Masked tokens have position 1, as transformers' get_rope_index writes them.
  for (size_t i = 0; i < out.size(); ++i) out[i] = (source.words[i] & TokenWord::kMasked) != 0 ? 1 : out[i];
}

// Writes [3, tokens]: the implied positions on all axes, then the explicit ones over them. `positions` has
// all values of the first axis, then those of the second and the third.
void WritePositions(const TokenSource& source, std::span<int64_t> out) {
  const size_t tokens = source.words.size();
  const std::span<int64_t> first = out.first(tokens);
  WriteImpliedPositions(source, first);
  for (uint64_t axis = 1; axis < kAxes; ++axis)
    std::copy(first.begin(), first.end(), out.begin() + axis * tokens);
  const size_t covered = source.positions.size() / kAxes;
  for (uint64_t axis = 0; axis < kAxes; ++axis) {
    const int32_t* from = source.positions.data() + axis * covered;
    for (size_t i = 0; i + 1 < source.spans.size(); i += 2) {
      const int32_t length = source.spans[i + 1];
      std::copy_n(from, length, out.begin() + static_cast<ptrdiff_t>(axis * tokens) + source.spans[i]);
      from += length;
    }
  }
}

}  // namespace

std::string_view TokenFieldName(TokenField field) {
  switch (field) {
    case TokenField::kInputIds:
      return "input_ids";
    case TokenField::kLabels:
      return "labels";
    case TokenField::kAttentionMask:
      return "attention_mask";
    case TokenField::kPositionIds:
      return "position_ids";
    case TokenField::kTypes:
      return "mm_token_type_ids";
  }
  return "unknown";
}

absl::Status CheckTokenSource(const TokenSource& source) {
  uint64_t tokens = 0;
  if (__builtin_mul_overflow(source.rows, source.tokens_per_row, &tokens) || tokens != source.words.size()) {
    return Damaged(source.words.size(), " words for ", source.rows, " rows of ", source.tokens_per_row);
  }
  if (tokens > INT32_MAX) return Damaged(tokens, " tokens; at most ", INT32_MAX, " are allowed");
  if (!source.padded) {
    if (absl::Status documents = CheckDocuments(source, tokens); !documents.ok()) return documents;
  }
  return CheckSpans(source, tokens);
}

void WriteTokenField(const TokenSource& source, TokenField field, std::span<int64_t> out) {
  const std::span<const uint32_t> words = source.words;
  switch (field) {
    case TokenField::kInputIds:
      for (size_t i = 0; i < words.size(); ++i) out[i] = words[i] & TokenWord::kMaxId;
      return;
    case TokenField::kLabels:
      for (size_t i = 0; i < words.size(); ++i) {
        const int64_t id = words[i] & TokenWord::kMaxId;
        out[i] = TokenWord::IsTrained(words[i]) ? id : kNoLossLabel;
      }
      return;
    case TokenField::kAttentionMask:
      for (size_t i = 0; i < words.size(); ++i) out[i] = (words[i] & TokenWord::kMasked) == 0;
      return;
    case TokenField::kPositionIds:
      return WritePositions(source, out);
    case TokenField::kTypes:
      for (size_t i = 0; i < words.size(); ++i) out[i] = TokenWord::TypeOf(words[i]);
      return;
  }
}

std::span<const std::byte> TokenFields::bytes(TokenField field) const {
  Kept& kept = kept_[static_cast<size_t>(field)];
  const size_t count = source_.words.size() * (field == TokenField::kPositionIds ? kAxes : 1);
  std::call_once(kept.computed, [&] {
    kept.values = std::make_unique_for_overwrite<int64_t[]>(count);
    WriteTokenField(source_, field, {kept.values.get(), count});
  });
  return std::as_bytes(std::span<const int64_t>(kept.values.get(), count));
}

}  // namespace evenkeel
