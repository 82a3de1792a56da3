// Costs of units, and what every rank has to do with and without the plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/job.h"
#include "core/plan.h"
#include "reorder/balance.h"
#include "reorder/layout.h"

namespace evenkeel::reorder {

// Tokens that a microbatch of the llm holds at most: the lesser of the job's capacity and pad_to; 0 where
// there is none.
uint64_t CapacityTokens(const Job& job);

// Costs of lengths as integers; padded costs are scaled such that even n times the dearest is exact.
std::vector<Load> ScaledCosts(const Cost& cost, Batching batching, std::span<const uint32_t> lengths);

// The cost of a batch: the sum of its units' (packed), or its count times the dearest (padded).
class BatchCost {
 public:
  BatchCost(const Cost& cost, Batching batching) : cost_(cost), batching_(batching) {}
  void Add(uint32_t length) {
    const double cost = CleanCost(cost_, length);
    ++count_;
    sum_ += cost;
    dearest_ = dearest_ < cost ? cost : dearest_;
  }
  // The cost so far; begins the next batch.
  double Take() {
    const double cost = batching_ == Batching::kPacked ? sum_ : count_ * dearest_;
    count_ = sum_ = dearest_ = 0;
    return cost;
  }

 private:
  const Cost cost_;
  const Batching batching_;
  double count_ = 0;
  double sum_ = 0;
  double dearest_ = 0;
};

// Fills load and tokens, before and after, of the llm and of all encoders (in the order of the layout).
// "Before" deals samples out in order, fills microbatches in order up to the capacity, leaves items beside
// their sample and has no dummies.
void MeasureLoads(const Job& job, const Layout& layout, std::span<const uint32_t> tokens, const Plan& plan,
                  PhasePlan& llm, std::vector<PhasePlan>& encoders);

}  // namespace evenkeel::reorder
