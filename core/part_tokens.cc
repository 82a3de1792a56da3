// Finds the token words among the tensors of a part, checks them, and replaces them by the fields that they
// stand for.
#include "core/part_tokens.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/part_prefix.h"
#include "core/status.h"

namespace evenkeel {
namespace {

constexpr size_t kCompanions = 2;  // spans and positions

template <typename... Args>
absl::Status Damaged(const Args&... args) {
  return absl::DataLossError(absl::StrCat("part: ", args...));
}

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

// The elements of an int32 tensor, as int32 or uint32. Receive buffers are aligned to 64 bytes, but a caller
// of ReadPart may pass other memory, so the alignment is checked.
template <typename T>
absl::StatusOr<std::span<const T>> Elements(const TensorView& tensor) {
  static_assert(sizeof(T) == 4);
  if (tensor.spec.dtype != DType::kI32) {
    return Damaged("tensor '", tensor.spec.name, "' is ", Text(DTypeName(tensor.spec.dtype)),
                   ", expected i32");
  }
  if (reinterpret_cast<uintptr_t>(tensor.wire.data()) % alignof(T) != 0) {
    return Damaged("tensor '", tensor.spec.name, "' is not aligned to ", alignof(T), " bytes");
  }
  return std::span<const T>(reinterpret_cast<const T*>(tensor.wire.data()), tensor.wire.size() / sizeof(T));
}

// Returns the elements of tensor `at`, which must be `name` and have two dimensions, `axis` of them with
// `extent` elements. The words are always followed by their spans and positions.
absl::StatusOr<std::span<const int32_t>> Companion(const std::vector<TensorView>& tensors, size_t at,
                                                   std::string_view name, size_t axis, uint64_t extent) {
  if (at >= tensors.size() || tensors[at].spec.name != name) {
    return Damaged("tensor ", at, " must be '", Text(name), "', which belongs to '", Text(kTokensName), "'");
  }
  const std::vector<uint64_t>& shape = tensors[at].spec.shape;
  if (shape.size() != 2 || shape[axis] != extent) {
    return Damaged("tensor '", Text(name), "' must have two dimensions, and ", extent,
                   " elements along axis ", axis);
  }
  return Elements<int32_t>(tensors[at]);
}

absl::StatusOr<TokenSource> SourceAt(const std::vector<TensorView>& tensors, size_t at) {
  const TensorSpec& spec = tensors[at].spec;
  if (spec.name != kTokensName || spec.shape.size() != 2) {
    return Damaged("tensor '", spec.name, "' with a token form must be named '", Text(kTokensName),
                   "' and have two dimensions");
  }
  TokenSource source{.rows = spec.shape[0], .tokens_per_row = spec.shape[1], .padded = spec.tokens->padded};
  EVENKEEL_ASSIGN_OR_RETURN(source.words, Elements<uint32_t>(tensors[at]));
  EVENKEEL_ASSIGN_OR_RETURN(source.spans, Companion(tensors, at + 1, kTokenSpansName, 1, 2));
  EVENKEEL_ASSIGN_OR_RETURN(source.positions, Companion(tensors, at + 2, kTokenPositionsName, 0, 3));
  if (!source.padded) {
    const auto documents = std::find_if(tensors.begin(), tensors.end(), [](const TensorView& tensor) {
      return tensor.spec.name == kDocumentsName;
    });
    if (documents == tensors.end()) return Damaged("packed tokens without '", Text(kDocumentsName), "'");
    EVENKEEL_ASSIGN_OR_RETURN(source.cu_seqlens, Elements<int32_t>(*documents));
  }
  EVENKEEL_RETURN_IF_ERROR(AddContext(CheckTokenSource(source), "part"));
  return source;
}

// `delivered`: a bit for each field; 0: all.
std::vector<TensorView> FieldsOf(const TokenSource& source, uint32_t delivered) {
  const auto tokens = std::make_shared<const TokenFields>(source);
  std::vector<TensorView> fields;
  for (TokenField field : {TokenField::kInputIds, TokenField::kLabels, TokenField::kAttentionMask,
                           TokenField::kPositionIds, TokenField::kTypes}) {
    if (field == TokenField::kAttentionMask && !source.padded) continue;
    if (delivered != 0 && (delivered >> static_cast<uint32_t>(field) & 1) == 0) continue;
    TensorSpec spec{.name = std::string(TokenFieldName(field)),
                    .dtype = DType::kI64,
                    .shape = {source.rows, source.tokens_per_row}};
    if (field == TokenField::kPositionIds) spec.shape.insert(spec.shape.begin(), 3);
    fields.push_back({.spec = std::move(spec), .wire = {}, .tokens = tokens, .field = field});
  }
  return fields;
}

}  // namespace

absl::Status PlaceTokenFields(uint32_t version, std::vector<TensorView>& tensors) {
  const auto has_form = [](const TensorView& tensor) { return tensor.spec.tokens.has_value(); };
  const auto words = std::find_if(tensors.begin(), tensors.end(), has_form);
  if (words == tensors.end()) {
    if (version == kPlainPartFormat) return absl::OkStatus();
    return Damaged("format version ", version, " without a token form");
  }
  if (version < kTokensPartFormat) return Damaged("format version ", version, " has no token form");
  if (std::find_if(words + 1, tensors.end(), has_form) != tensors.end()) {
    return Damaged("two tensors have a token form");
  }
  const uint32_t delivered = words->spec.tokens->fields;
  if (delivered >> kNumTokenFields != 0 || (delivered != 0) != (version == kFieldsPartFormat)) {
    return Damaged("format version ", version, " with the token fields ", delivered);
  }
  const auto at = static_cast<size_t>(words - tensors.begin());
  EVENKEEL_ASSIGN_OR_RETURN(const TokenSource source, SourceAt(tensors, at));
  std::vector<TensorView> fields = FieldsOf(source, delivered);
  for (const TensorView& field : fields) {
    for (const TensorView& tensor : tensors) {
      if (tensor.spec.name == field.spec.name)
        return Damaged("two tensors are named '", field.spec.name, "'");
    }
  }
  tensors.erase(words, words + 1 + kCompanions);
  tensors.insert(tensors.begin() + static_cast<ptrdiff_t>(at), std::make_move_iterator(fields.begin()),
                 std::make_move_iterator(fields.end()));
  return absl::OkStatus();
}

}  // namespace evenkeel
