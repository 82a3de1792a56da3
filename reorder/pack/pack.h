// Packs sequences into bins, where a bin is what one device runs at once: no bin exceeds its capacity in any
// phase, no sequence is dropped, bins are full, and all bins are alike in every phase.
//
// A bin is one device's share of a step. A step has as many bins as devices, taken from a keyed shuffle of
// all bins. Steps are not balanced afterwards: bins that are alike make every step even in any order. This
// plans a data set or a window of it; the work of a rank in one step is planned by `balance_problem.h`.
//
// Example:
//     PackInput input;
//     input.phases = {{.phase = Phase::kLlm, .capacity = 4096, .lengths = {1360, 358, 2900, 811}},
//                     {.phase = Phase::kVision, .capacity = 9216, .lengths = {5120, 1024, 1024, 3072}}};
//     EVENKEEL_ASSIGN_OR_RETURN(const Packing packing, Pack(input));
//     packing.bin[2];  // the bin of the third sample
//     const PackFigures figures = MeasurePack(input, packing);
//     figures.phases[1].distribution_ratio;
//
// Thread safety: pure functions of their input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/words.h"

namespace evenkeel::reorder {

struct PackPhase {
  Phase phase = Phase::kLlm;
  // The largest load of a bin, in the unit of the lengths (tokens, patches, images). 0: from the data, as in
  // OmniBal 5.1: the llm's longest sample, and for an encoder that times its rows per llm token, in whole
  // units of the lengths' common divisor and at least its longest sample.
  uint64_t capacity = 0;
  // `omnibal`: a group with less in every phase is drawn again. 0: OmniBal's, which is the capacity, and for
  // the llm 128 less.
  uint64_t target = 0;
  std::vector<uint32_t> lengths;  // [samples]
};

struct PackInput {
  std::vector<PackPhase> phases;  // one to three, each phase at most once
  std::string algorithm = "even_fill";
  uint32_t devices = 64;     // bins of a step
  uint64_t seed = 0;         // for the order of the bins, and for omnibal's draws
  uint32_t iterations = 10;  // omnibal
};

// Bins are numbered in the order of the steps: step s has bins [s * devices, (s + 1) * devices). The last
// step may have fewer.
struct Packing {
  uint32_t num_bins = 0;
  std::vector<uint32_t> bin;         // [samples]
  std::vector<uint64_t> capacities;  // [phases] also those taken from the data
};

// Of one phase.
struct PackedPhase {
  Phase phase = Phase::kLlm;
  uint64_t capacity = 0;
  double fill = 0;  // mean load of a bin over its capacity
  // OmniBal (2), the mean over steps of 1 - mean / max over the devices of a step. If there is a full step,
  // only full ones count.
  double distribution_ratio = 0;
  // A bound for any assignment of each step's samples to its devices: the fullest device has at least the
  // longest sample, the next multiple of the lengths' common divisor, and with few different lengths (tiles)
  // what a bound on the number of bins leaves. If the ratio is near it, these steps cannot be made more
  // even.
  double distribution_ratio_floor = 0;
  double max_over_mean = 1;  // of all bins
};

struct PackFigures {
  std::vector<PackedPhase> phases;  // in the order of the input
  // For the fullest phase: the bins that its total needs at least, over the bins used.
  double fill = 0;
  uint64_t bins_bound = 0;  // no packing has fewer
  double samples_per_bin = 0;
  // OmniBal (1), the mean over bins, for the first phase: the share that padding every sample of a bin to the
  // longest would waste. A packed bin pads nothing.
  double pad_ratio = 0;
};

// Returns the bin of every sample. InvalidArgument: no phase or a repeated one, different numbers of lengths,
// no devices, an unknown algorithm, or a sample that alone exceeds a capacity (named with its number, phase
// and length).
absl::StatusOr<Packing> Pack(const PackInput& input);

// Internal: a sample without a bin, a bin that does not exist or is empty, or an exceeded capacity.
absl::Status PackCheck(const PackInput& input, const Packing& packing);

// The figures of a packing that passed PackCheck.
PackFigures MeasurePack(const PackInput& input, const Packing& packing);

// "a, b, c", for messages.
std::string PackAlgorithmNames();

}  // namespace evenkeel::reorder
