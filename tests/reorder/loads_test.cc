// Costs as integers, and loads before and after planning.
#include "reorder/loads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "reorder/planner.h"
#include "tests/reorder/omni_trace.h"
#include "tests/usual_phases.h"

namespace evenkeel::reorder {
namespace {

std::vector<uint32_t> DrawLengths(Random& random, size_t count) {
  std::vector<uint32_t> lengths(count);
  for (uint32_t& length : lengths) {
    const uint64_t kind = random.Below(8);
    length = kind == 0   ? 0
             : kind == 1 ? std::numeric_limits<uint32_t>::max()
                         : static_cast<uint32_t>(random.Below(uint64_t{1} << random.Below(33)));
  }
  return lengths;
}

// Fractions, costs below zero, and costs that are no number, or larger than any.
const std::vector<Cost> kCosts = {{},
                                  {.constant = 3, .linear = 0.7, .quadratic = 1e-5, .mask_factor = 0.3},
                                  {.constant = -1000, .linear = 1},
                                  {.constant = 0.5, .linear = 0},
                                  {.linear = std::numeric_limits<double>::quiet_NaN()},
                                  {.linear = 1e300, .quadratic = 1e300},
                                  {.linear = 0}};

TEST(LoadsOf, AreWhatScaleMakesOfEveryCost) {
  Random random(5);
  for (const Cost& cost : kCosts) {
    for (size_t count : {0u, 1u, 3u, 4u, 5u, 64u, 1003u}) {
      const std::vector<uint32_t> lengths = DrawLengths(random, count);
      for (Batching batching : {Batching::kPacked, Batching::kPadded}) {
        double sum[4] = {}, heaviest = 0;
        for (size_t i = 0; i < count; ++i) {
          sum[i < count / 4 * 4 ? i % 4 : 0] += CleanCost(cost, lengths[i]);
          heaviest = std::max(heaviest, CleanCost(cost, lengths[i]));
        }
        const Scale scale(batching == Batching::kPadded ? heaviest * static_cast<double>(count)
                                                        : (sum[0] + sum[1]) + (sum[2] + sum[3]));
        std::vector<Load> expected(count);
        for (size_t i = 0; i < count; ++i) expected[i] = scale(CleanCost(cost, lengths[i]));
        EXPECT_EQ(LoadsOf(cost, batching, lengths), expected)
            << cost.constant << " " << cost.linear << ", " << count;
      }
    }
  }
}

TEST(MeasureLoads, CostsThatAreLengthsAndCostsThatAreTwiceThemDifferByTwo) {
  Job job;
  for (Phase phase : kUsualPhases) job.phases.push_back({.phase = phase, .ranks = {0, 1, 2}});
  StepSamples step{.lengths = DrawOmniTrace(7, 100)};
  for (size_t s = 0; s < step.lengths.size(); ++s) step.refs.push_back({0, 0, s});
  const auto once = MakePlan(job, step, {});
  for (PhaseSpec& spec : job.phases) spec.cost.linear = 2;
  const auto twice = MakePlan(job, step, {});
  ASSERT_TRUE(once.ok() && twice.ok());
  for (size_t p = 0; p < job.phases.size(); ++p) {
    const PhasePlan &one = once->phases[p], &two = twice->phases[p];
    EXPECT_EQ(one.tokens_after, two.tokens_after);
    for (size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(2 * one.load_before[r], two.load_before[r]);
      EXPECT_EQ(2 * one.load_after[r], two.load_after[r]);
      EXPECT_GT(one.load_after[r], 0);
    }
  }
}

// Three items of 2, 3 and 5 in one batch: 1 + 4n each, and 3 times 10 * 5 squared; half as much again for
// masks.
TEST(MeasureLoads, PaddedAttentionCountsTheLongestForEveryUnit) {
  Job job;
  job.phases.push_back({.phase = Phase::kLlm, .ranks = {0}});
  job.phases.push_back({.phase = kVisionPhase, .ranks = {0}, .padded_attention = true});
  job.phases[1].cost = {.constant = 1, .linear = 4, .quadratic = 10, .mask_factor = 0.5};
  StepSamples step{.refs = {{}}, .lengths = {{.llm_length = 9}}};
  for (uint32_t n : {2u, 5u, 3u}) step.lengths[0].items.push_back({Medium::kImage, {n, n, 1}});
  const auto plan = MakePlan(job, step, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->phases[1].load_after, (std::vector<double>{1.5 * (3 + 4 * 10) + 1.5 * 3 * 10 * 25}));
  EXPECT_EQ(plan->phases[1].load_before, plan->phases[1].load_after);
  EXPECT_TRUE(PlanCheck(job, step, *plan).ok()) << PlanCheck(job, step, *plan);
}

}  // namespace
}  // namespace evenkeel::reorder
