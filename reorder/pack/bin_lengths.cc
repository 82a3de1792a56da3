// Adds up the items of every sample by the phase that encodes them.
#include "reorder/pack/bin_lengths.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/planned_tokens.h"
#include "reorder/item_phases.h"

namespace evenkeel::reorder {

absl::StatusOr<std::vector<PackPhase>> BinLengths(std::span<const PhaseSpec> phases,
                                                  std::span<const SampleLengths> lengths, uint32_t align) {
  std::vector<Phase> names;
  std::vector<PackPhase> out;
  for (const PhaseSpec& spec : phases) {
    names.push_back(spec.phase);
    out.push_back({.phase = spec.phase, .lengths = std::vector<uint32_t>(lengths.size(), 0)});
  }
  const auto add = [](uint64_t more, uint32_t& length) {
    length = static_cast<uint32_t>(std::min<uint64_t>(length + more, std::numeric_limits<uint32_t>::max()));
  };
  const ItemPhases table(names);
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (PackPhase& phase : out) {
      if (phase.phase != Phase::kLlm) continue;
      add(PlannedTokens(lengths[s], align, Batching::kPacked).tokens, phase.lengths[s]);
    }
    for (const SampleItem& item : lengths[s].items) {
      const std::optional<size_t> p = table.Find(item);
      if (!p.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("no phase of the job encodes ", std::string(MediumName(item.medium)),
                         " items; add one to the job's phases, or index again"));
      }
      add(item.lengths.cost_length, out[*p].lengths[s]);
    }
  }
  return out;
}

}  // namespace evenkeel::reorder
