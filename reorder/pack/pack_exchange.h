// A fixed number of bins that exchange samples until all are alike in every phase.
//
// Two bins exchange bundles of up to two samples each. Of all pairs of bundles the one is chosen that leaves
// the least squared load above the level of a phase: the mean, or the next whole number of its units, or the
// bin's longest sample if that is more. A step waits for its fullest bin; emptier bins cost nothing, so they
// count little. In a pass the bins are sorted by one phase, or by one phase minus another, and the first is
// paired with the last. The average of such a pair is near the mean of all bins, so a few passes suffice, in
// time linear in the samples.
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

  // Assigns all samples, largest first, in rounds: a quarter of the bins, those with the smallest maximum
  // over the phases, get one sample each; a sample with much of a phase goes to a bin with little of it. May
  // exceed capacities.
  void Deal();

  struct Aim {
    PhaseLoads weight{};          // weight of a phase's evenness
    PhaseLoads level{1, 1, 1};    // loads in means up to which bins count as even
    bool keep_capacities = true;  // no exchange may exceed a capacity, or exceed it further
    bool pairs = true;            // also bundles of two
  };
  // A direction for comparing bins: the sum over the phases of load times factor, with loads in shares of the
  // mean.
  using Direction = std::array<double, kNumPhases>;
  // Pairs the first and last `share` of the bins in `direction`. Returns the number of pairs that exchanged
  // something.
  size_t Pass(const Direction& direction, double share, const Aim& aim);

  // Pairs the bins that exceed a capacity, the furthest first, with those with the most room in all phases
  // together. Returns how many exceeded one.
  size_t PassByRoom(const Aim& aim);

  // Removes samples, one by one and as few as possible, until no bin exceeds a capacity.
  std::vector<uint32_t> TakeExcess();

  Bins samples() const;

 private:
  struct Slot {
    PhaseLengths length;
    uint32_t sample;
  };
  struct Bin {
    PhaseLoads load{};
    size_t begin = 0;  // begin of its slots
    uint32_t size = 0, room = 0;
  };
  struct Bundles;
  struct Gap;

  std::span<const Slot> SlotsOf(const Bin& bin) const { return {slots_.data() + bin.begin, bin.size}; }
  void Put(Bin& bin, const Slot& slot);
  PhaseLengths LongestOf(const Bin& bin) const;
  bool Keeps(const Bin& bin, const PhaseLoads& added) const;
  void Gather(const Bin& bin, const Aim& aim, Bundles& bundles) const;
  Gap GapOf(const Bin& a, const PhaseLengths& longest_a, const Bin& b, const PhaseLengths& longest_b,
            const Aim& aim) const;
  bool Exchange(Bin& a, Bin& b, const Aim& aim);
  // Pairs the first `pairs` bins of order_ with the last ones, the first with the last. Returns as Pass.
  size_t Meet(size_t pairs, const Aim& aim);

  const PackProblem& problem_;
  PhaseLoads to_share_{};                  // 1 / mean load of a bin
  std::array<int, kNumPhases> present_{};  // phases of the problem, first
  int num_present_ = 0;
  std::vector<Bin> bins_;
  std::vector<Slot> slots_;      // of all bins, each with free slots
  std::vector<uint64_t> order_;  // for a pass
};

}  // namespace evenkeel::reorder
