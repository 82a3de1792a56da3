// What the packing algorithms see of a problem, and the algorithms: one file each.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "core/words.h"
#include "reorder/pack/pack.h"

namespace evenkeel::reorder {

// Lengths or loads by the number of the phase; those that a problem does not have are 0. A load is a sum of
// 32-bit lengths, exact in a double up to 2^53.
using PhaseLengths = std::array<uint32_t, kMaxPhases>;
using PhaseLoads = std::array<double, kMaxPhases>;

constexpr PhaseLoads AllPhases(double value) {
  PhaseLoads loads{};
  for (double& load : loads) load = value;
  return loads;
}

// The lengths of all samples in one array: a problem has few phases, and kMaxPhases for each sample would
// waste the cache.
class LengthTable {
 public:
  LengthTable() : LengthTable(0) {}
  explicit LengthTable(int num_phases) : num_phases_(static_cast<size_t>(num_phases)) {}
  void resize(size_t samples) { samples_ = samples, values_.resize(samples * num_phases_); }
  void push_back(const uint32_t* lengths) {
    values_.insert(values_.end(), lengths, lengths + num_phases_);
    ++samples_;
  }
  size_t size() const { return samples_; }
  bool empty() const { return samples_ == 0; }
  // [num_phases] the lengths of one sample.
  const uint32_t* operator[](size_t sample) const { return values_.data() + sample * num_phases_; }
  uint32_t* operator[](size_t sample) { return values_.data() + sample * num_phases_; }

 private:
  size_t num_phases_, samples_ = 0;
  std::vector<uint32_t> values_;
};

struct PackProblem {
  int num_phases = 0;     // one more than the highest number; a number may be unused
  LengthTable lengths;    // [samples]
  PhaseLoads capacity{};  // none exceeded by a sample; 0 where the phase is absent
  PhaseLoads target{};
  PhaseLoads total{};
  PhaseLoads unit{};  // the lengths' greatest common divisor: loads are multiples of it
  uint64_t seed = 0;
  uint32_t iterations = 1;
  uint32_t devices = 1;
};

// The problem that an input is with these capacities, by the input's phases; targets are left 0.
PackProblem MakePackProblem(const PackInput& input, const std::vector<uint64_t>& capacities);

// At least 1.
uint64_t CommonDivisor(const std::vector<uint32_t>& lengths);

// No packing has fewer bins; in the worst phase. See pack_bounds.cc.
uint64_t FewestBins(const PackProblem& problem);

// The same by two phases at a time, which takes longer; at least `known_bins`, a bound already.
uint64_t FewestBinsOfTwoPhases(const PackProblem& problem, uint64_t known_bins);

// Samples from the largest share of `whole` in any phase to the smallest; equal ones by the sum of their
// shares, then by number.
std::vector<uint32_t> LargestShareFirst(const PackProblem& problem, const PhaseLoads& whole);

// Numbers with a key each, in 64 bits: std::sort orders them by key, and equal keys by number.
inline uint64_t Keyed(uint32_t key, uint32_t number) { return uint64_t{key} << 32 | number; }
inline uint32_t NumberOf(uint64_t keyed) { return static_cast<uint32_t>(keyed); }

// A float as a key: smaller values have smaller bits, negative ones included. Not for NaN.
inline uint32_t OrderedBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 as 0
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// Whether `load` with `sample` keeps all capacities.
inline bool Fits(const PackProblem& problem, const PhaseLoads& load, const uint32_t* sample) {
  for (int p = 0; p < problem.num_phases; ++p) {
    if (load[p] + sample[p] > problem.capacity[p]) return false;
  }
  return true;
}

inline void Add(const PackProblem& problem, PhaseLoads& load, const uint32_t* sample) {
  for (int p = 0; p < problem.num_phases; ++p) load[p] += sample[p];
}
inline void Subtract(const PackProblem& problem, PhaseLoads& load, const uint32_t* sample) {
  for (int p = 0; p < problem.num_phases; ++p) load[p] -= sample[p];
}

// The bin of every sample, in bins numbered from 0 without gaps.
using Bins = std::vector<std::vector<uint32_t>>;  // [bins] samples of each
Bins PackOmnibal(const PackProblem& problem);
Bins PackBestFitDecreasing(const PackProblem& problem);
Bins PackEvenFill(const PackProblem& problem);

// Halves of the fullest bins become bins of their own, until there are `count` or each has one sample.
void SplitInto(const PackProblem& problem, size_t count, Bins& bins);

// In a multiple of bins, where there are as many samples; else one sample a bin.
Bins PackEvenFillInMultiples(const PackProblem& problem, size_t multiple);

// The place of every bin in the order of the steps: a shuffle by the seed of the bins by their first samples,
// the same for the same bins whatever order they come in. No bin is empty.
std::vector<uint32_t> PlacesInSteps(const Bins& bins, uint64_t seed);

// [num_phases] distribution_ratio, its floor and max_over_mean of bins in that order.
std::vector<PackedPhase> MeasureBins(const PackProblem& problem, const Bins& bins);

// The same of one phase, of the loads and longest samples of bins in the order of the steps. Loads are
// multiples of `unit`; `least` is LeastFullest of every step, or empty.
void MeasureSteps(const std::vector<uint64_t>& load, const std::vector<uint32_t>& longest, size_t devices,
                  double unit, std::span<const uint64_t> least, PackedPhase& phase);

// [steps] What the fullest device of a step has at least, however the step's samples are dealt to its
// devices: more than the mean where few different lengths leave no other sums. Empty where it is not
// known.
std::vector<uint64_t> LeastFullest(const Packing& packing, const std::vector<uint32_t>& lengths,
                                   uint64_t capacity, uint64_t unit, size_t devices, size_t steps);

// Samples, largest first, each to the bin of `bins` where it fits and leaves least, else to a new one.
void AddBestFit(const PackProblem& problem, const std::vector<uint32_t>& samples, Bins& bins);

}  // namespace evenkeel::reorder
