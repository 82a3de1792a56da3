// Checks packing problems, takes capacities from the data where none are given, and runs the chosen
// algorithm.
#include "reorder/pack/pack.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/by_name.h"
#include "reorder/pack/pack_problem.h"

namespace evenkeel::reorder {
namespace {

// OmniBal 5.1: a text target of 128 below the capacity was among the best.
constexpr uint64_t kTextBelowCapacity = 128;

struct PackAlgorithm {
  std::string_view name;
  Bins (*pack)(const PackProblem&);
  // In a multiple of bins that are alike; null: bins are split until there are as many.
  Bins (*pack_in_multiples)(const PackProblem&, size_t multiple);
};

constexpr PackAlgorithm kAlgorithms[] = {{"even_fill", PackEvenFill, PackEvenFillInMultiples},
                                         {"omnibal", PackOmnibal, nullptr},
                                         {"best_fit_decreasing", PackBestFitDecreasing, nullptr}};

const PackAlgorithm* FindAlgorithm(std::string_view name) { return FindByName(kAlgorithms, name); }

absl::Status CheckInput(const PackInput& input) {
  if (input.phases.empty()) return absl::InvalidArgumentError("pack: no phase; give at least the llm");
  const PackPhase* seen[kMaxPhases] = {};  // by number
  for (const PackPhase& phase : input.phases) {
    const PackPhase* const other = std::exchange(seen[phase.phase.number()], &phase);
    if (other != nullptr) {
      const std::string name(PhaseName(phase.phase)), other_name(PhaseName(other->phase));
      return absl::InvalidArgumentError(
          name == other_name ? absl::StrCat("pack: phase ", name, " is listed twice")
                             : absl::StrCat("pack: phases ", other_name, " and ", name, " both have number ",
                                            static_cast<int>(phase.phase.number())));
    }
    if (phase.lengths.size() != input.phases.front().lengths.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "pack: ", std::string(PhaseName(phase.phase)), " has ", phase.lengths.size(), " lengths, ",
          std::string(PhaseName(input.phases.front().phase)), " has ", input.phases.front().lengths.size()));
    }
    if (phase.lengths.size() > (1u << 30)) return absl::InvalidArgumentError("pack: more than 2^30 samples");
  }
  if (input.devices == 0) return absl::InvalidArgumentError("pack: devices must be at least 1");
  return CheckPackAlgorithm(input.algorithm);
}

uint64_t Sum(const std::vector<uint32_t>& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), uint64_t{0});
}

uint64_t Longest(const std::vector<uint32_t>& lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

// OmniBal 5.1: Qt is the longest text, and the ratio of text to images gives Qv.
uint64_t CapacityFromData(const PackInput& input, const PackPhase& phase) {
  const uint64_t longest = Longest(phase.lengths);
  for (const PackPhase& llm : input.phases) {
    if (llm.phase != Phase::kLlm || phase.phase == Phase::kLlm) continue;
    const double text = static_cast<double>(Sum(llm.lengths));
    if (text == 0) break;
    const uint64_t text_capacity = llm.capacity > 0 ? llm.capacity : Longest(llm.lengths);
    const uint64_t unit = CommonDivisor(phase.lengths);
    const double units = static_cast<double>(text_capacity) * static_cast<double>(Sum(phase.lengths)) / text /
                         static_cast<double>(unit);
    return std::max(longest, static_cast<uint64_t>(std::floor(units + 0.5)) * unit);
  }
  return longest;
}

uint64_t Target(const PackPhase& phase, uint64_t capacity) {
  if (phase.target > 0) return phase.target;
  if (phase.phase != Phase::kLlm) return capacity;
  return capacity - std::min(capacity, kTextBelowCapacity);
}

// Sums of lengths are doubles, which are exact up to this value.
constexpr uint64_t kMaxTotal = uint64_t{1} << 53;

absl::Status CheckLengths(const PackPhase& phase, uint64_t capacity) {
  if (Sum(phase.lengths) > kMaxTotal) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pack: the lengths of phase ", std::string(PhaseName(phase.phase)), " sum to more than 2^53"));
  }
  for (size_t s = 0; s < phase.lengths.size(); ++s) {
    if (phase.lengths[s] <= capacity) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "pack: sample ", s, " has ", phase.lengths[s], " in phase ", std::string(PhaseName(phase.phase)),
        ", more than a bin's capacity of ", capacity, "; raise the capacity or leave out the sample"));
  }
  return absl::OkStatus();
}

// By the algorithm, in a multiple of the input's `multiple` where there are as many samples.
Bins PackInMultiples(const PackInput& input, const PackProblem& problem) {
  const PackAlgorithm& algorithm = *FindAlgorithm(input.algorithm);
  const size_t multiple = std::max(1u, input.multiple), samples = problem.lengths.size();
  if (algorithm.pack_in_multiples != nullptr && multiple > 1 && samples > 0)
    return algorithm.pack_in_multiples(problem, multiple);
  Bins bins = algorithm.pack(problem);
  std::erase_if(bins, [](const std::vector<uint32_t>& bin) { return bin.empty(); });
  const size_t count = std::min((bins.size() + multiple - 1) / multiple * multiple, samples);
  SplitInto(problem, count, bins);
  return bins;
}

Packing InOrderOfSteps(const Bins& bins, size_t samples, uint64_t seed) {
  Packing packing{.num_bins = static_cast<uint32_t>(bins.size())};
  packing.bin.resize(samples);
  const std::vector<uint32_t> place = PlacesInSteps(bins, seed);
  for (size_t b = 0; b < bins.size(); ++b) {
    for (uint32_t sample : bins[b]) packing.bin[sample] = place[b];
  }
  return packing;
}

}  // namespace

std::vector<std::vector<uint32_t>> SamplesOfBins(const Packing& packing, uint32_t multiple) {
  const size_t groups = std::max<size_t>(1, (size_t{packing.num_bins} + multiple - 1) / multiple);
  std::vector<std::vector<uint32_t>> bins(groups * multiple);
  for (uint32_t s = 0; s < packing.bin.size(); ++s) bins[packing.bin[s]].push_back(s);
  return bins;
}

absl::Status CheckPackAlgorithm(std::string_view algorithm) {
  if (FindAlgorithm(algorithm) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("pack: algorithm '", std::string(algorithm),
                                                 "' is unknown; expected one of ", PackAlgorithmNames()));
}

std::string PackAlgorithmNames() { return NamesOf(kAlgorithms); }

absl::StatusOr<Packing> Pack(const PackInput& input) {
  EVENKEEL_RETURN_IF_ERROR(CheckInput(input));
  std::vector<uint64_t> capacities;
  for (const PackPhase& phase : input.phases) {
    capacities.push_back(phase.capacity > 0 ? phase.capacity : CapacityFromData(input, phase));
    EVENKEEL_RETURN_IF_ERROR(CheckLengths(phase, capacities.back()));
  }
  PackProblem problem = MakePackProblem(input, capacities);
  for (size_t p = 0; p < capacities.size(); ++p) {
    problem.target[input.phases[p].phase.number()] =
        static_cast<double>(Target(input.phases[p], capacities[p]));
  }
  const Bins bins = PackInMultiples(input, problem);
  Packing packing = InOrderOfSteps(bins, problem.lengths.size(), input.seed);
  packing.capacities = std::move(capacities);
  return packing;
}

}  // namespace evenkeel::reorder
