// Packs sequences into bins, each of which one device runs at once, so that no bin exceeds its capacity in
// any phase, no sequence is dropped, bins are full, and all bins are alike in every phase.
//
// A bin is one device's share of a step; a step has one bin per device, in a keyed shuffle of all bins. Steps
// are not balanced afterwards: bins that are alike make every step even, whatever the order. This plans a
// whole data set or a window of it; what a rank of one step computes is planned by `balance_problem.h`.
//
// Example:
//     PackInput input;
//     input.phases = {{.phase = Phase::kLlm, .capacity = 4096, .lengths = {900, 2100, 1800}},
//                     {.phase = vision, .capacity = 9216, .lengths = {4096, 1024, 5120}}};
//     EVENKEEL_ASSIGN_OR_RETURN(const Packing packing, Pack(input));
//     uint32_t bin_of_the_first_sample = packing.bin[0];
//     const PackFigures figures = MeasurePack(input, packing);
//     double ratio = figures.phases[1].distribution_ratio;
//
// Thread safety: pure functions of their input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/words.h"

namespace evenkeel::reorder {

struct PackPhase {
  Phase phase = Phase::kLlm;
  // The most a bin may have, in the unit of the lengths (tokens, patches, images). 0: from the data, as
  // OmniBal 5.1 has it: the llm's longest sample, and for an encoder that times its rows per llm token, in
  // whole units of the lengths' common divisor and at least its longest sample.
  uint64_t capacity = 0;
  // `omnibal`: a group with less in every phase is drawn again. 0: OmniBal's, the capacity, and for the llm
  // 128 less.
  uint64_t target = 0;
  std::vector<uint32_t> lengths;  // [samples]
};

struct PackInput {
  std::vector<PackPhase> phases;  // each phase and each number at most once; numbers decide ties
  std::string algorithm = "even_fill";
  uint32_t devices = 64;     // bins of a step
  uint64_t seed = 0;         // of the order of the bins, and of what omnibal draws
  uint32_t iterations = 10;  // omnibal
  // The number of bins is a multiple of this, where there are as many samples. Else it is the number of samples.
  uint32_t multiple = 1;
};

// Bins are numbered in the order of the steps: step s is bins [s * devices, (s + 1) * devices). The last step
// may have fewer.
struct Packing {
  uint32_t num_bins = 0;
  std::vector<uint32_t> bin;         // [samples]
  std::vector<uint64_t> capacities;  // [phases] those kept, also where they are taken from the data
};

// Of one phase.
struct PackedPhase {
  Phase phase = Phase::kLlm;
  uint64_t capacity = 0;
  double fill = 0;  // mean load of a bin over its capacity
  // OmniBal (2), the mean over steps: 1 - mean / max over the devices of a step. Where there is a full step,
  // only full ones count.
  double distribution_ratio = 0;
  // What no dealing of each step's samples to its devices goes below: of the fullest device the longest
  // sample, the next multiple of the lengths' common divisor, and where there are few different lengths
  // (tiles) what a bound on the number of bins leaves. Where the ratio is near it, more cannot be had of
  // these steps.
  double distribution_ratio_floor = 0;
  double max_over_mean = 1;  // of all bins
};

struct PackFigures {
  std::vector<PackedPhase> phases;  // in the order of the input
  // Of the phase that is fullest: bins that its total would need at least, over bins used.
  double fill = 0;
  uint64_t bins_bound = 0;  // no packing has fewer
  double samples_per_bin = 0;
  // OmniBal (1), the mean over bins, of the first phase: what padding every sample of a bin to its longest
  // would waste. A packed bin pads nothing.
  double pad_ratio = 0;
};

// The bin of every sample.
// InvalidArgument: no phase or one twice, lengths that differ in number, no devices, no such algorithm, or a
// sample that alone exceeds a capacity (the message has its number, phase and length).
absl::StatusOr<Packing> Pack(const PackInput& input);

// Internal: a sample without a bin, a bin that does not exist or is empty, or one that exceeds a capacity.
absl::Status PackCheck(const PackInput& input, const Packing& packing);

// Of a packing that passed PackCheck.
PackFigures MeasurePack(const PackInput& input, const Packing& packing);

// [bins] The samples of every bin, ascending. Empty bins make the number a multiple of `multiple`, above 0.
std::vector<std::vector<uint32_t>> SamplesOfBins(const Packing& packing, uint32_t multiple);

// InvalidArgument: there is no such algorithm.
absl::Status CheckPackAlgorithm(std::string_view algorithm);
// "a, b, c", for messages.
std::string PackAlgorithmNames();

}  // namespace evenkeel::reorder
