// The same problem has the same solution on every build and CPU: one digest per kind, of hundreds of random
// problems and of some like those in practice. Run also with instruction sets masked, and without
// optimisation; see CMakeLists.txt. No libm here: its functions differ between CPUs.
//
// A digest that changes is a planner that changes: fine for a better algorithm, and then noted here. What a
// job plans is also in planner_test, and that number may change with kStreamVersion only.
#include <gtest/gtest.h>

#include <cstdint>

#include "reorder/context_parallel/context_parallel.h"
#include "reorder/pack/pack.h"
#include "reorder/pipeline/microbatch_order.h"
#include "reorder/problem/balance_problem.h"
#include "tests/reorder/omni_trace.h"
#include "tests/reorder/pack/random_packing.h"
#include "tests/reorder/pipeline/pipeline_problems.h"
#include "tests/reorder/random_problem.h"
#include "tests/reorder/solution_digest.h"
#include "tests/usual_phases.h"

namespace evenkeel::reorder {
namespace {

// Changed with stream versions 3 and 4, and before: loads of phases with padded attention are the padded ones, and pipelines are ordered by them.
TEST(GoldenSolutions, OfEveryAlgorithmThatBalances) {
  SolutionDigest digest;
  int planned = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const Below below = BelowFrom(seed);
    RandomProblem problem = DrawProblem(below);
    const auto plan = DrawPlan(below, problem);
    digest.Add(uint64_t{plan.ok()});
    if (!plan.ok()) continue;
    ++planned;
    digest.Add(*plan);
  }
  EXPECT_GT(planned, 250);
  EXPECT_EQ(digest.value(), 4935980549413050939ull);
}

TEST(GoldenSolutions, OfOrders) {
  SolutionDigest digest;
  Random random(21);
  for (uint64_t i = 0; i < 300; ++i) {
    const auto algorithm = i % 3 == 0 ? "disttrain" : "local_search";
    const OrderProblem problem{
        .pipeline = DrawPipeline(random, 5, 14), .algorithm = algorithm, .seed = i, .iterations = 300};
    const auto outcome = SolveOrder(problem);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    digest.Add(*outcome);
  }
  EXPECT_EQ(digest.value(), 1234270959898361129ull);
}

// Changed once: one phase is packed no worse than by best fit.
TEST(GoldenSolutions, OfPackings) {
  SolutionDigest digest;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto packing = Pack(DrawPackInput(BelowFrom(seed)));
    digest.Add(uint64_t{packing.ok()});
    if (packing.ok()) digest.Add(*packing);
  }
  EXPECT_EQ(digest.value(), 1582935430990525486ull);
}

TEST(GoldenSolutions, OfContextParallelGroups) {
  SolutionDigest digest;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const auto plan = PlanContextParallel(DrawContextParallelInput(BelowFrom(seed)));
    digest.Add(uint64_t{plan.ok()});
    if (plan.ok()) digest.Add(*plan);
  }
  EXPECT_EQ(digest.value(), 3171561521690920168ull);
}

// Lengths as they are in practice, which problems made to be nasty do not have: what is drawn, and what every
// kind makes of it.
TEST(GoldenSolutions, OfStepsDrawnFromATrace) {
  SolutionDigest drawn, balanced, packed, grouped;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const std::vector<SampleLengths> trace = DrawOmniTrace(seed, 64 * 30);
    RandomProblem problem;
    problem.job.ranks_per_node = 8;
    PackInput pack{.devices = 8, .seed = seed};
    ContextParallelInput groups{.ranks = 64, .memory_per_rank = 8192, .memory_per_token = 1};
    groups.cost = {.attention = 1.0 / 4096, .linear = 1, .constant = 15, .ring = 0.3, .ring_constant = 30};
    for (Phase phase : kUsualPhases) {
      PhaseSpec& spec = problem.job.phases.emplace_back();
      spec.phase = phase;
      for (uint32_t r = 0; r < 64; ++r) spec.ranks.push_back(r);
      pack.phases.push_back({.phase = phase, .lengths = std::vector<uint32_t>(trace.size())});
    }
    problem.step.lengths = trace;
    for (size_t s = 0; s < trace.size(); ++s) {
      problem.step.refs.push_back({0, 0, s});
      drawn.Add(trace[s].llm_length);
      pack.phases[0].lengths[s] = trace[s].llm_length;
      groups.sequences.push_back({.tokens = trace[s].llm_length});
      for (const SampleItem& item : trace[s].items) {
        drawn.Add(item.lengths.cost_length);
        pack.phases[UsualPhaseOf(item.medium).number()].lengths[s] += item.lengths.cost_length;
      }
    }
    balanced.Add(*MakePlan(problem.job, problem.step, problem.dummies));
    packed.Add(*Pack(pack));
    grouped.Add(*PlanContextParallel(groups));
  }
  EXPECT_EQ(drawn.value(), 1762102091606652749ull);
  EXPECT_EQ(balanced.value(), 3862971145408516286ull);
  EXPECT_EQ(packed.value(), 16763495570867661934ull);
  EXPECT_EQ(grouped.value(), 781169438010817044ull);
}

}  // namespace
}  // namespace evenkeel::reorder
