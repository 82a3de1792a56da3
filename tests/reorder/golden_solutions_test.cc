// The same problem has the same solution on every build and CPU: one digest per kind, of hundreds of random
// problems. Run also with instruction sets masked; see CMakeLists.txt. No libm here: its functions differ
// between CPUs.
//
// A digest that changes is a planner that changes: fine for a better algorithm, and then noted here. What a
// job plans is also in planner_test, and that number may change with kStreamVersion only.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

#include "reorder/balance_problem.h"
#include "reorder/context_parallel.h"
#include "reorder/keyed_shuffle.h"
#include "reorder/microbatch_order.h"
#include "reorder/pack.h"
#include "tests/reorder/pipeline_problems.h"
#include "tests/reorder/random_packing.h"
#include "tests/reorder/random_problem.h"

namespace evenkeel {
namespace {

Below Numbers(uint64_t seed) {
  return [numbers = reorder::KeyedNumbers(seed)](uint64_t bound) mutable -> uint64_t {
    return bound == 0 ? 0 : numbers.Next() % bound;
  };
}

// FNV-1a over 64-bit words.
class Digest {
 public:
  void Add(uint64_t word) { value_ = (value_ ^ word) * 0x100000001b3ull; }
  void Add(double value) { Add(std::bit_cast<uint64_t>(value)); }
  void Add(uint32_t value) { Add(uint64_t{value}); }
  template <typename T>
  void AddEach(const std::vector<T>& values) {
    Add(uint64_t{values.size()});
    for (const T& value : values) Add(value);
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325ull;
};

TEST(GoldenSolutions, OfEveryAlgorithmThatBalances) {
  Digest digest;
  int planned = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Below below = Numbers(seed);
    RandomProblem problem = DrawProblem(below);
    const auto plan = DrawPlan(below, problem);
    digest.Add(uint64_t{plan.ok()});
    if (!plan.ok()) continue;
    ++planned;
    for (const PhasePlan& phase : plan->phases) {
      digest.AddEach(phase.order), digest.AddEach(phase.begin), digest.AddEach(phase.load_after);
    }
    for (const Route& route : plan->routes) {
      for (const RouteRun& run : RunsOf(*plan, route)) {
        digest.Add(run.from), digest.Add(run.to), digest.Add(run.from_row), digest.Add(run.rows);
      }
    }
  }
  EXPECT_GT(planned, 250);
  EXPECT_EQ(digest.value(), 5385630961148168743ull);
}

TEST(GoldenSolutions, OfOrders) {
  Digest digest;
  Random random(21);
  for (uint64_t i = 0; i < 300; ++i) {
    const auto algorithm = i % 3 == 0 ? "disttrain" : "local_search";
    const OrderProblem problem{
        .pipeline = DrawPipeline(random, 5, 14), .algorithm = algorithm, .seed = i, .iterations = 300};
    const auto outcome = SolveOrder(problem);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    digest.AddEach(outcome->order), digest.Add(outcome->timeline.iteration_time);
  }
  EXPECT_EQ(digest.value(), 1234270959898361129ull);
}

TEST(GoldenSolutions, OfPackings) {
  Digest digest;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto packing = Pack(DrawPackInput(Numbers(seed)));
    digest.Add(uint64_t{packing.ok()});
    if (packing.ok()) digest.Add(packing->num_bins), digest.AddEach(packing->bin);
  }
  EXPECT_EQ(digest.value(), 13159026616558542157ull);
}

TEST(GoldenSolutions, OfContextParallelGroups) {
  Digest digest;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto plan = PlanContextParallel(DrawContextParallelInput(Numbers(seed)));
    digest.Add(uint64_t{plan.ok()});
    if (!plan.ok()) continue;
    for (const ContextParallelMicrobatch& microbatch : plan->microbatches) {
      for (const ContextParallelGroup& group : microbatch.groups) {
        digest.Add(group.degree), digest.AddEach(group.sequences), digest.Add(group.time);
      }
    }
  }
  EXPECT_EQ(digest.value(), 11058532969981228045ull);
}

}  // namespace
}  // namespace evenkeel
