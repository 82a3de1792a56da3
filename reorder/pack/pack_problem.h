// A packing problem in columns, for the packing algorithms, which have one file each.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "core/words.h"
#include "reorder/pack/pack.h"

namespace evenkeel::reorder {

// Lengths or loads of all phases; 0 for phases that the problem lacks. A load is a sum of 32-bit lengths,
// exact in a double up to 2^53.
using PhaseLengths = std::array<uint32_t, kNumPhases>;
using PhaseLoads = std::array<double, kNumPhases>;

struct PackProblem {
  std::vector<PhaseLengths> lengths;  // [samples]
  PhaseLoads capacity{};              // exceeded by no sample; 0: the phase is absent
  PhaseLoads target{};
  PhaseLoads total{};
  PhaseLoads unit{};  // greatest common divisor of the lengths; loads are multiples of it
  uint64_t seed = 0;
  uint32_t iterations = 1;
  uint32_t devices = 1;
};

// The problem of an input with these capacities, in the input's order of phases; targets are left 0.
PackProblem MakePackProblem(const PackInput& input, const std::vector<uint64_t>& capacities);

// At least 1.
uint64_t CommonDivisor(const std::vector<uint32_t>& lengths);

// No packing has fewer bins: the maximum over the phases. See pack_bounds.cc.
uint64_t FewestBins(const PackProblem& problem);

// The same for two phases at a time, which takes longer; at least `known_bins`, a known bound.
uint64_t FewestBinsOfTwoPhases(const PackProblem& problem, uint64_t known_bins);

// Samples from the largest share of `whole` in any phase to the smallest; ties by the sum of their shares,
// then by number.
std::vector<uint32_t> LargestShareFirst(const PackProblem& problem, const PhaseLoads& whole);

// Numbers with a key each in 64 bits: std::sort orders them by key, and ties by number.
inline uint64_t Keyed(uint32_t key, uint32_t number) { return uint64_t{key} << 32 | number; }
inline uint32_t KeyOf(uint64_t keyed) { return static_cast<uint32_t>(keyed >> 32); }
inline uint32_t NumberOf(uint64_t keyed) { return static_cast<uint32_t>(keyed); }

// A float as an integer key in the same order, including negative values. Not for NaN.
inline uint32_t OrderedBits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value + 0.0f);  // -0 as 0
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// Whether adding `sample` to `load` keeps all capacities.
inline bool Fits(const PackProblem& problem, const PhaseLoads& load, const PhaseLengths& sample) {
  for (int p = 0; p < kNumPhases; ++p) {
    if (load[p] + sample[p] > problem.capacity[p]) return false;
  }
  return true;
}

inline void Add(PhaseLoads& load, const PhaseLengths& sample) {
  for (int p = 0; p < kNumPhases; ++p) load[p] += sample[p];
}

// Bins numbered from 0 without gaps.
using Bins = std::vector<std::vector<uint32_t>>;  // [bins] samples of each
Bins PackOmnibal(const PackProblem& problem);
Bins PackBestFitDecreasing(const PackProblem& problem);
Bins PackEvenFill(const PackProblem& problem);

// The place of every bin in the order of the steps: a shuffle by the seed, keyed by the bins' first samples,
// so that it does not depend on the order in which bins are given. No bin may be empty.
std::vector<uint32_t> PlacesInSteps(const Bins& bins, uint64_t seed);

// distribution_ratio, its floor and max_over_mean of bins in that order.
std::array<PackedPhase, kNumPhases> MeasureBins(const PackProblem& problem, const Bins& bins);

// The same for one phase, from the loads and longest samples of bins in the order of the steps. Loads are
// multiples of `unit`; `least` is the result of LeastFullest for every step, or empty.
void MeasureSteps(const std::vector<uint64_t>& load, const std::vector<uint32_t>& longest, size_t devices,
                  double unit, std::span<const uint64_t> least, PackedPhase& phase);

// [steps] A lower bound on the fullest device of a step for every assignment of the step's samples to
// devices. It is above the mean if few different lengths allow no other sums. Empty if it cannot be
// computed.
std::vector<uint64_t> LeastFullest(const Packing& packing, const std::vector<uint32_t>& lengths,
                                   uint64_t capacity, uint64_t unit, size_t devices, size_t steps);

// Places samples, largest first, each in the bin of `bins` where it fits with the least room left, or in a
// new one.
void AddBestFit(const PackProblem& problem, const std::vector<uint32_t>& samples, Bins& bins);

}  // namespace evenkeel::reorder
