// A fixed number of bins that exchange samples until they are alike in every phase.
//
// Two bins exchange bundles of up to two samples each: of all pairs of bundles the one that leaves least of
// their loads, squared, above the level of a phase, which is the mean, or the next whole number of its units,
// or the longest sample of the bin where that is more. What a step waits for is its fullest bin; that others
// are less full costs nothing by itself, so it counts little. In a pass the bins are sorted by one phase, or
// by one phase less another, and the first meets the last. Since the average of such a pair is near the mean
// of all bins, a few passes suffice, in time linear in the samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reorder/pack/pack_problem.h"

namespace evenkeel::reorder {

class ExchangingBins {
 public:
  ExchangingBins(const PackProblem& problem, size_t num_bins);
  ExchangingBins(const PackProblem& problem, const Bins& bins);

  // All samples, largest first, in rounds: a quarter of the bins, those with least in the phase in which they
  // have most, take a sample each, the one with much of a phase to the bin with little of it. May exceed
  // capacities.
  void Deal();

  struct Aim {
    PhaseLoads weight{};              // how much evenness of a phase counts
    PhaseLoads level = AllPhases(1);  // up to which loads are even, in means
    bool keep_capacities = true;      // no exchange pushes a bin over a capacity, or further over
    bool pairs = true;                // bundles of two, too
  };
  // A direction in which bins are compared: the sum over the phases of load times factor, loads being shares
  // of the mean.
  using Direction = PhaseLoads;
  // The first and last `share` of the bins by `direction` meet. Returns how many pairs exchanged something.
  size_t Pass(const Direction& direction, double share, const Aim& aim);

  // The bins that exceed a capacity, the furthest first, meet those with most room in all phases together.
  // Returns how many exceeded one.
  size_t PassByRoom(const Aim& aim);

  // Takes out samples, as few as suffice one by one, until no bin exceeds a capacity.
  std::vector<uint32_t> TakeExcess();

  Bins samples() const;

 private:
  struct Bin {
    PhaseLoads load{};
    std::vector<uint32_t> samples;
  };
  struct Bundle;
  struct Gap;

  void Put(Bin& bin, uint32_t sample);
  PhaseLengths LongestOf(const Bin& bin) const;
  std::vector<Bundle> BundlesOf(const Bin& bin, const Aim& aim) const;
  Gap GapOf(const Bin& a, const PhaseLengths& longest_a, const Bin& b, const PhaseLengths& longest_b,
            const Aim& aim) const;
  bool KeepCapacities(const Bin& a, const Bundle& given, const Bin& b, const Bundle& taken) const;
  bool Exchange(Bin& a, Bin& b, const Aim& aim);
  // The first `pairs` bins of order_ meet the last, the first the last. Returns as Pass.
  size_t Meet(size_t pairs, const Aim& aim);

  const PackProblem& problem_;
  PhaseLoads to_share_{};  // 1 / mean load of a bin
  std::vector<Bin> bins_;
  std::vector<uint64_t> order_;  // of a pass
};

}  // namespace evenkeel::reorder
