// Plans with dynamic context parallelism: every invariant on random jobs, and what the check finds.
#include "reorder/step_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "reorder/planner.h"
#include "tests/reorder/random_problem.h"

namespace evenkeel::reorder {
namespace {

Job JobOf(uint32_t ranks, uint64_t tokens_per_rank) {
  Job job;
  for (Phase phase : kUsualPhases) {
    PhaseSpec& spec = job.phases.emplace_back();
    spec.phase = phase;
    for (uint32_t r = 0; r < ranks; ++r) spec.ranks.push_back(r);
  }
  job.groups = {.given = true, .powers_of_two = true, .max_size = ranks, .tokens_per_rank = tokens_per_rank};
  job.groups.sizes = PoolSizes(ranks, job.groups);
  return job;
}

StepSamples StepOf(const std::vector<SampleLengths>& lengths) {
  StepSamples step;
  step.lengths = lengths;
  for (uint64_t i = 0; i < lengths.size(); ++i) step.refs.push_back({0, 0, i});
  return step;
}

TEST(StepGroups, KeepEveryInvariantOnRandomJobs) {
  const Below below = BelowFrom(9);
  std::set<uint32_t> sizes;
  int shared = 0, sent_to_several = 0;
  for (int i = 0; i < 3000; ++i) {
    const RandomProblem problem = DrawGrouped(below);
    const auto plan = MakePlan(problem.job, problem.step, problem.dummies);
    ASSERT_TRUE(plan.ok()) << "problem " << i << ": " << plan.status();
    const absl::Status checked = PlanCheck(problem.job, problem.step, *plan);
    ASSERT_TRUE(checked.ok()) << "problem " << i << ": " << checked;
    for (const RankGroup& group : plan->groups) sizes.insert(group.size);
    for (const PhaseSpec& spec : problem.job.phases) {
      if (spec.phase != Phase::kLlm && problem.job.IsSharedByGroups(spec)) ++shared;
    }
    for (const Route& route : plan->routes) {
      uint64_t in = 0, received = 0;
      for (const RankRoute& rank : route.per_rank) in += rank.rows_in, received += rank.rows_out;
      if (received > in) ++sent_to_several;
    }
    const auto again = MakePlan(problem.job, problem.step, problem.dummies);
    ASSERT_EQ(plan->groups, again->groups) << "problem " << i;
  }
  EXPECT_GT(sizes.size(), 5u) << "groups of many sizes were planned";
  EXPECT_GT(shared, 100);
  EXPECT_GT(sent_to_several, 100);
}

TEST(StepGroups, RowsGoToEveryMemberOfTheGroup) {
  Job job = JobOf(2, 100);
  SampleLengths sample{.llm_length = 180, .loss_tokens = 9, .items = {{Medium::kImage, {16, 16, 4}}}};
  DummyItems dummies;
  const StepSamples step = StepOf({sample});
  const auto plan = MakePlan(job, step, dummies);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->groups, (std::vector<RankGroup>{{0, 2}, {0, 2}}));
  EXPECT_EQ(plan->phase(Phase::kLlm)->load_after, (std::vector<double>{90, 90}));
  EXPECT_EQ(plan->phase(Phase::kLlm)->tokens_after, (std::vector<uint64_t>{90, 90}));
  const Route& route = *plan->route(kVisionPhase, 0);
  EXPECT_EQ(route.per_rank[0].rows_out, 4u);
  EXPECT_EQ(route.per_rank[1].rows_out, 4u);
  EXPECT_FALSE(route.all_stay);
}

TEST(StepGroups, MembersEncodeTheSameItemsWhereNothingMoves) {
  Job job = JobOf(2, 100);
  for (PhaseSpec& spec : job.phases) {
    if (spec.phase == Phase::kLlm) continue;
    spec.runs = Runs::kOncePerMicrobatch;
    spec.algorithm = "none";
  }
  const StepSamples step =
      StepOf({{.llm_length = 180, .loss_tokens = 9, .items = {{Medium::kImage, {16, 16, 4}}}}});
  const auto plan = MakePlan(job, step, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const Route& route = *plan->route(kVisionPhase, 0);
  EXPECT_TRUE(route.all_stay);
  for (const RankRoute& rank : route.per_rank) {
    EXPECT_EQ(rank.rows_in, 4u);
    EXPECT_EQ(rank.rows_out, 4u);
  }
}

TEST(StepGroups, AttentionWithinMediaCosts) {
  // Of three samples of one length, the one with a long video gets the larger group, wherever it stands.
  Job job = JobOf(4, 1000);
  job.groups.sizes = {1, 2};
  job.groups.media_attend_fully = true;
  job.phases[0].cost = {.linear = 0, .quadratic = 1};
  for (size_t video = 0; video < 3; ++video) {
    std::vector<SampleLengths> lengths(3, {.llm_length = 600, .loss_tokens = 9});
    lengths[video].items = {{Medium::kVideo, {500, 500, 500}}};
    const auto plan = MakePlan(job, StepOf(lengths), {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->num_microbatches, 1u);
    for (size_t s = 0; s < 3; ++s) {
      EXPECT_EQ(plan->groups[plan->samples[s].place.rank].size, s == video ? 2u : 1u) << video;
    }
  }
}

TEST(StepGroups, ASampleBeyondTheLargestGroupIsNamed) {
  const auto plan = MakePlan(JobOf(2, 100), StepOf({{.llm_length = 20}, {.llm_length = 201}}), {});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(plan.status().message(),
            "step 0: sample 1 of dataset 0 takes 201 llm tokens when aligned to 1, more than the largest "
            "group holds (2 "
            "ranks of 100); raise topology.groups.max_size or tokens_per_rank, or lower "
            "limits.max_llm_length and index "
            "again");
}

TEST(StepGroups, AnUnknownAlgorithmIsRefused) {
  Job job = JobOf(2, 100);
  job.groups.algorithm = "ring";
  EXPECT_EQ(CheckJob(job).message(),
            "topology.groups.algorithm: 'ring' is unknown; expected one of regroup, dhp, static, "
            "static_power_of_two, "
            "persistent");
}

TEST(StepGroups, CostsBeyondMeasureAreRefusedBeforeAnyStep) {
  Job job = JobOf(2, 100);
  job.phases[0].cost.quadratic = 1e200;
  EXPECT_EQ(CheckJob(job).message(),
            "cost of the phase llm, with topology.groups: context_parallel: cost.attention is 1e+200; "
            "expected a number "
            "from 0 to 1e30");
}

TEST(StepGroups, TheCheckFindsBrokenGroups) {
  const Job job = JobOf(4, 100);
  const StepSamples step =
      StepOf({{.llm_length = 150, .loss_tokens = 1}, {.llm_length = 40, .loss_tokens = 1}});
  const auto plan = MakePlan(job, step, {});
  ASSERT_TRUE(plan.ok() && PlanCheck(job, step, *plan).ok()) << plan.status();
  ASSERT_EQ(plan->num_microbatches, 1u);
  const std::vector<std::function<void(Plan&)>> breaks = {
      [](Plan& p) { p.groups.clear(); },
      [](Plan& p) {
        p.groups[0] = {1, 1};
      },
      [](Plan& p) {
        p.groups[3] = {2, 2};
        p.groups[2] = {2, 1};
      },
      [](Plan& p) {
        p.groups[p.samples[0].place.rank] = {p.samples[0].place.rank, 1};
      },
      [](Plan& p) {
        p.groups.assign(4, {0, 3});
      },
      [](Plan& p) { p.phases[0].load_after[0] += 1; },
      [](Plan& p) { p.phases[0].tokens_after[1] += 1; },
  };
  for (size_t b = 0; b < breaks.size(); ++b) {
    Plan broken = *plan;
    breaks[b](broken);
    EXPECT_FALSE(PlanCheck(job, step, broken).ok()) << b;
  }
}

}  // namespace
}  // namespace evenkeel::reorder
