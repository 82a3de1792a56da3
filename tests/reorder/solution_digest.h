// Digests of solutions: what must be the same on every build and CPU.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "reorder/context_parallel/context_parallel.h"
#include "reorder/pack/pack.h"
#include "reorder/pipeline/microbatch_order.h"
#include "reorder/problem/balance_problem.h"

namespace evenkeel::reorder {

// FNV-1a over 64-bit words.
class SolutionDigest {
 public:
  void Add(uint64_t word) { value_ = (value_ ^ word) * 0x100000001b3ull; }
  void Add(double value) { Add(std::bit_cast<uint64_t>(value)); }
  void Add(uint32_t value) { Add(uint64_t{value}); }
  template <typename T>
  void AddEach(const std::vector<T>& values) {
    Add(uint64_t{values.size()});
    for (const T& value : values) Add(value);
  }

  void Add(const Plan& plan) {
    for (const PhasePlan& phase : plan.phases) {
      AddEach(phase.order), AddEach(phase.begin), AddEach(phase.load_after);
    }
    for (const Route& route : plan.routes) {
      for (const RouteRun& run : RunsOf(plan, route)) {
        Add(run.from), Add(run.to), Add(run.from_row), Add(run.rows);
      }
    }
  }
  void Add(const Packing& packing) { Add(packing.num_bins), AddEach(packing.bin); }
  void Add(const OrderOutcome& outcome) { AddEach(outcome.order), Add(outcome.timeline.iteration_time); }
  void Add(const ContextParallelPlan& plan) {
    for (const ContextParallelMicrobatch& microbatch : plan.microbatches) {
      for (const ContextParallelGroup& group : microbatch.groups) {
        Add(group.degree), AddEach(group.sequences), Add(group.time);
      }
    }
  }

  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325ull;
};

}  // namespace evenkeel::reorder
