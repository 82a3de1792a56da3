// Gives the phases of a problem their media and numbers, by their names.
#include "reorder/named_phases.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/implied_media.h"
#include "core/job_syntax.h"
#include "core/status.h"

namespace evenkeel::reorder {
namespace {

// After the phases whose media are implied, then their numbers if they are unused; 0 is the llm's.
std::optional<uint8_t> UnusedNumber(const std::vector<Phase>& numbered) {
  constexpr size_t kEncoders = kMaxPhases - 1, kImplied = 2;
  for (size_t i = 0; i < kEncoders; ++i) {
    const auto number = static_cast<uint8_t>(1 + (kImplied + i) % kEncoders);
    const auto has_it = [&](const Phase& phase) { return phase.number() == number; };
    if (std::none_of(numbered.begin(), numbered.end(), has_it)) return number;
  }
  return std::nullopt;
}

}  // namespace

absl::Status CheckPhaseName(std::string_view name) {
  if (IsPhaseName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "'", ShortText(std::string(name)), "' is not the name of a phase: a lower-case letter, then at most ",
      Phase::kMaxName - 1, " lower-case letters, digits, '_' or '-'"));
}

absl::StatusOr<std::vector<Phase>> NamedPhases(std::span<const std::string> names) {
  std::vector<Phase> phases, numbered;
  for (const std::string& name : names) {
    EVENKEEL_RETURN_IF_ERROR(CheckPhaseName(name));
    const std::optional<Phase> implied = PhaseOfImpliedMedia(name);
    const Phase generator = ImpliedGenerator();
    phases.push_back(
        implied.value_or(name == generator.name() ? generator : Phase(name, 0, {Medium::kImage})));
    if (implied.has_value()) numbered.push_back(*implied);
  }
  for (Phase& phase : phases) {
    const auto known = std::find(numbered.begin(), numbered.end(), phase);
    if (known != numbered.end()) {
      phase = *known;
      continue;
    }
    const std::optional<uint8_t> number = UnusedNumber(numbered);
    if (!number.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxPhases, " phases, the llm included; '",
                                                     std::string(phase.name()), "' is one too many"));
    }
    phase = phase.Numbered(*number);
    numbered.push_back(phase);
  }
  return phases;
}

}  // namespace evenkeel::reorder
