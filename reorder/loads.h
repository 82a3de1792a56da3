// Costs of units, and what every rank has to do with and without the plan. Pure functions and plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "reorder/balance/balance.h"
#include "reorder/layout.h"
#include "reorder/units.h"

namespace evenkeel::reorder {

// Tokens that a microbatch of the llm holds at most: the lesser of the job's capacity and pad_to; 0 where
// there is none.
uint64_t CapacityTokens(const Job& job);

// The job's cost of every length (see CleanCost) as an integer; padded ones are scaled such that even n times
// the heaviest is exact. [lengths] `first` as of CleanCost, or empty.
std::vector<Load> LoadsOf(const Cost& cost, Batching batching, std::span<const uint32_t> lengths,
                          std::span<const uint32_t> first = {});

// Costs and tokens of many batches at once. A batch costs the sum of its units (packed); its count times its
// heaviest unit (padded); with padded attention the sum of what attention does not cost, and the count times
// the greatest attention.
class BatchCosts {
 public:
  BatchCosts(const PhaseSpec& spec, size_t ranks, size_t batches_per_rank);

  void Add(size_t rank, size_t batch_of_rank, uint32_t length, uint32_t first = 0) {
    Batch& b = batches_[rank * batches_per_rank_ + batch_of_rank];
    b.count += 1;
    b.sum += CleanCost(summed_, length, first);
    b.heaviest = std::max(b.heaviest, CleanCost(padded_, length, first));
    tokens_[rank] += length;
  }
  // [ranks]
  std::vector<double> Loads() const;
  const std::vector<uint64_t>& tokens() const { return tokens_; }

 private:
  struct Batch {
    double count = 0, sum = 0, heaviest = 0;
  };
  // Of a unit: what is added up over a batch, and what every unit of a batch costs as much as the heaviest.
  const Cost summed_, padded_;
  const size_t batches_per_rank_;
  std::vector<Batch> batches_;    // of rank 0, then of rank 1, ...
  std::vector<uint64_t> tokens_;  // [ranks]
};

// Fills load and tokens, before and after, of the llm and of all encoders (in the order of the layout).
// "Before" deals samples out in order, fills microbatches in order up to the capacity, leaves items with
// their sample and has no dummies; "after" counts the dummies.
void MeasureLoads(const Job& job, const Layout& layout, const LlmUnits& llm,
                  const std::vector<EncoderUnits>& encoders, PhasePlan& llm_plan,
                  std::vector<PhasePlan>& encoder_plans);

}  // namespace evenkeel::reorder
