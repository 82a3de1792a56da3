// Cuts a role's part out of a whole one: chooses tensors by name, and clears what the role does not need in the words of
// tokens.
#include "core/part_role.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel {
namespace {

constexpr uint32_t Bit(TokenField field) { return 1u << static_cast<uint32_t>(field); }

constexpr uint32_t kIdBits = TokenWord::kMaxId;
constexpr uint32_t kTypeBits = TokenWord::kMaxType << TokenWord::kTypeShift;

// The fields that a role gets of the tokens of its part.
uint32_t FieldsOf(PartRole role) {
  constexpr uint32_t kAll = Bit(TokenField::kAttentionMask) | Bit(TokenField::kPositionIds);
  if (role == PartRole::kFirst) return kAll | Bit(TokenField::kInputIds) | Bit(TokenField::kTypes);
  if (role == PartRole::kLast) return kAll | Bit(TokenField::kLabels) | Bit(TokenField::kTypes);
  return kAll;
}

// What is left of a word.
uint32_t WordFor(PartRole role, uint32_t word) {
  if (role == PartRole::kFirst) return TokenWord::IsTarget(word) ? word : word & ~TokenWord::kTrained;
  if (role == PartRole::kMiddle) return word & TokenWord::kMasked;
  return TokenWord::IsTrained(word) ? word : word & ~kIdBits;
}
static_assert((kIdBits & kTypeBits) == 0);

bool TakesLlmTensor(PartRole role, const TensorSpec& spec) {
  if (spec.name == "loss_weights" || spec.name == "columns") return role == PartRole::kLast;
  // Documents and explicit positions describe the positions of packed tokens.
  if (spec.tokens.has_value()) return role != PartRole::kMiddle || spec.tokens->padded;
  return true;
}

bool TakesEncoderTensor(PartRole role, const TensorSpec& spec) {
  return role == PartRole::kLast &&
         (spec.name == "item_valid" || spec.name == "item_rows" || absl::EndsWith(spec.name, "_grid_thw"));
}

bool IsLlm(const PartLayout& layout) { return layout.name().phase == Phase::kLlm; }

}  // namespace

bool RoleReceives(PartRole role, const Phase& phase) {
  return phase == Phase::kLlm || role != PartRole::kMiddle;
}

bool RoleIsWhole(PartRole role, const Phase& phase) {
  return role == PartRole::kWhole || (role == PartRole::kFirst && phase != Phase::kLlm);
}

PartLayout RoleLayout(const PartLayout& whole, PartRole role) {
  if (RoleIsWhole(role, whole.name().phase)) return whole;
  std::vector<TensorSpec> tensors;
  for (const TensorSpec& spec : whole.tensors()) {
    if (!(IsLlm(whole) ? TakesLlmTensor(role, spec) : TakesEncoderTensor(role, spec))) continue;
    tensors.push_back(spec);
    if (spec.tokens.has_value()) tensors.back().tokens->fields = FieldsOf(role);
  }
  return whole.WithTensors(std::move(tensors));
}

absl::Status WriteRolePart(std::span<const std::byte> whole, PartRole role, std::span<std::byte> out) {
  EVENKEEL_ASSIGN_OR_RETURN(const PartLayout from, ReadPartLayout(whole));
  const PartLayout to = RoleLayout(from, role);
  if (out.size() != to.total_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(DescribePart(to.name()), " for a member of the ",
                                                   std::string(PartRoleName(role)), " stage has ",
                                                   to.total_bytes(), " bytes, the buffer ", out.size()));
  }
  to.WriteHeader(out);
  for (size_t i = 0; i < to.tensors().size(); ++i) {
    const TensorSpec& spec = to.tensors()[i];
    const auto found = std::find_if(from.tensors().begin(), from.tensors().end(),
                                    [&](const TensorSpec& one) { return one.name == spec.name; });
    const std::span<const std::byte> source =
        from.const_tensor(whole, static_cast<size_t>(found - from.tensors().begin()));
    const std::span<std::byte> target = to.tensor(out, i);
    if (!source.empty()) std::memcpy(target.data(), source.data(), source.size());
    if (!spec.tokens.has_value() || RoleIsWhole(role, to.name().phase)) continue;
    for (size_t at = 0; at < target.size(); at += sizeof(uint32_t)) {
      uint32_t word = 0;
      std::memcpy(&word, target.data() + at, sizeof(word));
      word = WordFor(role, word);
      std::memcpy(target.data() + at, &word, sizeof(word));
    }
  }
  return absl::OkStatus();
}

}  // namespace evenkeel
