// Preference pairs in the plan: what they cost, and where their sequences are.
#include <gtest/gtest.h>

#include <vector>

#include "core/planned_tokens.h"
#include "reorder/planner.h"
#include "tests/reorder/random_problem.h"

namespace evenkeel::reorder {
namespace {

Job OneRank(Batching batching, Cost cost = {}) {
  Job job;
  for (Phase phase : kUsualPhases) {
    PhaseSpec& spec = job.phases.emplace_back();
    spec.phase = phase;
    spec.ranks = {0};
  }
  job.phases[0].batching = batching;
  job.phases[0].cost = cost;
  return job;
}

SampleLengths PairOf(uint32_t chosen, uint32_t rejected) {
  return {.llm_length = chosen + rejected, .loss_tokens = 1, .items = {}, .chosen_length = chosen};
}

StepSamples StepOf(const std::vector<SampleLengths>& lengths) {
  StepSamples step;
  step.lengths = lengths;
  for (uint64_t i = 0; i < lengths.size(); ++i) step.refs.push_back({0, 0, i});
  return step;
}

Plan Checked(const Job& job, const StepSamples& step) {
  absl::StatusOr<Plan> plan = MakePlan(job, step, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  if (!plan.ok()) return {};
  const absl::Status checked = PlanCheck(job, step, *plan);
  EXPECT_TRUE(checked.ok()) << checked;
  return *std::move(plan);
}

TEST(PlannedTokens, OfAPairAreAlignedForEachSequence) {
  EXPECT_EQ(PlannedTokens(PairOf(5, 9), 4, Batching::kPacked).tokens, 20u);
  EXPECT_EQ(PlannedTokens(PairOf(5, 9), 4, Batching::kPacked).chosen, 8u);
  EXPECT_EQ(PlannedTokens(PairOf(5, 9), 4, Batching::kPadded).tokens, 24u);
  EXPECT_EQ(PlannedTokens(PairOf(9, 5), 4, Batching::kPadded).chosen, 12u);
  EXPECT_EQ(PlannedTokens({.llm_length = 14}, 4, Batching::kPadded).tokens, 16u);
}

TEST(Pairs, CostWhatTheirSequencesCost) {
  const StepSamples step = StepOf({PairOf(10, 4), {.llm_length = 14}});
  const Cost cost = {.constant = 3, .linear = 2, .quadratic = 1};
  EXPECT_EQ(Checked(OneRank(Batching::kPacked, cost), step).phases[0].load_after[0],
            2 * 3 + 2 * 14 + 10 * 10 + 4 * 4 + 3 + 2 * 14 + 14 * 14);
  // Rows are as long as the longest: two of 10 cost more than one of 14.
  EXPECT_EQ(Checked(OneRank(Batching::kPadded, cost), step).phases[0].load_after[0],
            2 * 2 * (3 + 2 * 10 + 10 * 10));
}

// By the square of its tokens the pair would be as heavy as all others together.
TEST(Pairs, AreBalancedByThatCost) {
  Job job = OneRank(Batching::kPacked, {.constant = 0, .linear = 0, .quadratic = 1});
  for (PhaseSpec& spec : job.phases) spec.ranks = {0, 1};
  const Plan plan = Checked(job, StepOf({PairOf(100, 100),
                                         {.llm_length = 100},
                                         {.llm_length = 100},
                                         {.llm_length = 100},
                                         {.llm_length = 100}}));
  EXPECT_EQ(plan.phases[0].load_after, (std::vector<double>{30000, 30000}));
}

TEST(Pairs, OfPaddedBatchesHaveTheRowsOfRejectedSequencesLast) {
  const SampleItem image = {Medium::kImage, {16, 16, 4}};
  SampleLengths pair = PairOf(6, 7);
  pair.items = {image, image};
  SampleLengths text{.llm_length = 9, .items = {image}};
  const StepSamples step = StepOf({pair, text, pair});
  const std::vector<uint32_t> rows_last = {0, 2, 3, 1, 4}, in_order = {0, 1, 2, 3, 4};
  EXPECT_EQ(Checked(OneRank(Batching::kPadded), step).phases[1].order, rows_last);
  EXPECT_EQ(Checked(OneRank(Batching::kPacked), step).phases[1].order, in_order);
}

// Each has the items of the prompt for both sequences.
void MakePairs(const Below& below, StepSamples& step) {
  for (SampleLengths& lengths : step.lengths) {
    if (lengths.llm_length < 2 || below(3) == 0) continue;
    lengths.chosen_length = static_cast<uint32_t>(1 + below(lengths.llm_length - 1));
    const std::vector<SampleItem> of_prompt = lengths.items;
    lengths.items.insert(lengths.items.end(), of_prompt.begin(), of_prompt.end());
  }
}

TEST(Pairs, KeepEveryInvariantOnRandomJobs) {
  const Below below = BelowFrom(4);
  int planned[2] = {};
  for (int i = 0; i < 4000; ++i) {
    const bool is_grouped = i % 4 == 0;
    RandomProblem problem = is_grouped ? DrawGrouped(below) : DrawProblem(below);
    MakePairs(below, problem.step);
    const auto plan =
        is_grouped ? MakePlan(problem.job, problem.step, problem.dummies) : DrawPlan(below, problem);
    if (!plan.ok()) {
      ASSERT_TRUE(absl::IsInvalidArgument(plan.status())) << plan.status();
      continue;
    }
    const absl::Status checked = PlanCheck(problem.job, problem.step, *plan);
    ASSERT_TRUE(checked.ok()) << "problem " << i << ": " << checked;
    ++planned[problem.job.phase(Phase::kLlm)->batching == Batching::kPadded];
  }
  EXPECT_GT(planned[0], 1000);
  EXPECT_GT(planned[1], 300);
}

}  // namespace
}  // namespace evenkeel::reorder
