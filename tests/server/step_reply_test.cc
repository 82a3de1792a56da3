// A rank's description of a step: its own side, whatever the number of ranks.
#include "server/step_reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>

#include "proto/service.pb.h"
#include "tests/stream/fake_stream.h"

namespace evenkeel::server {
namespace {

// A stream, its plan of step 0, and what describes it.
struct Described {
  Described(Job job, std::vector<stream::FakeSample> samples)
      : stream(stream::MakeFakeStream(std::move(job), std::move(samples))),
        builder(*stream, nullptr),
        pool({}, nullptr),
        plan(std::make_shared<const stream::StepPlan>(*stream::PlanStep(*stream, 0))) {}

  pb::DescribeStepReply Reply(uint32_t rank, bool all_loads = false) const {
    pb::DescribeStepRequest request;
    request.set_rank(rank);
    request.set_all_loads(all_loads);
    pb::DescribeStepReply reply;
    const absl::Status status =
        DescribeStep(*stream, builder, pool, 1ull << 30, std::span(&plan, 1), request, reply);
    EXPECT_TRUE(status.ok()) << status;
    return reply;
  }

  std::unique_ptr<stream::Stream> stream;
  stream::PartBuilder builder;
  PartPool pool;
  std::shared_ptr<const stream::StepPlan> plan;
};

// Two samples a rank, all of them alike: the same work for every rank, whatever their number.
Described Alike(uint32_t ranks) {
  stream::FakeSample sample{.text = "twelve words"};
  sample.items = {{.medium = Medium::kImage, .rows = 16}, {.medium = Medium::kAudio, .rows = 8}};
  return Described(stream::FakeJob(ranks, 2 * ranks), std::vector<stream::FakeSample>(2 * ranks, sample));
}

size_t LargestReply(const Described& step, uint32_t ranks, bool all_loads) {
  size_t largest = 0;
  for (uint32_t rank = 0; rank < ranks; rank += ranks / 16) {
    largest = std::max(largest, step.Reply(rank, all_loads).ByteSizeLong());
    largest = std::max(largest, step.Reply(rank + ranks / 16 - 1, all_loads).ByteSizeLong());
  }
  return largest;
}

TEST(StepReply, DoesNotGrowWithTheNumberOfRanks) {
  const Described few = Alike(64), many = Alike(4096);
  const size_t small = LargestReply(few, 64, /*all_loads=*/false);
  // Larger numbers take a byte more each; nothing is there once more.
  EXPECT_LE(LargestReply(many, 4096, false), small + 64);
  EXPECT_EQ(many.Reply(4095).parts_size(), few.Reply(63).parts_size());
  EXPECT_GT(LargestReply(many, 4096, /*all_loads=*/true), 4096 * 8u) << "who asks for all loads gets them";
}

TEST(StepReply, HasLargestMeanAndOwnLoadOfEachPhase) {
  const Described step(stream::FakeJob(5, 20), stream::MixedSamples(40));
  for (uint32_t rank = 0; rank < 5; ++rank) {
    const pb::DescribeStepReply reply = step.Reply(rank);
    ASSERT_EQ(reply.loads_size(), static_cast<int>(step.plan->plan.phases.size()));
    for (int i = 0; i < reply.loads_size(); ++i) {
      const PhasePlan& phase = step.plan->plan.phases[i];
      const pb::PhaseLoads& loads = reply.loads(i);
      EXPECT_EQ(loads.phase(), PhaseName(phase.phase));
      EXPECT_EQ(loads.num_ranks(), 5);
      EXPECT_EQ(loads.before_size() + loads.tokens_after_size(), 0);
      EXPECT_EQ(loads.before_spread().max(),
                *std::max_element(phase.load_before.begin(), phase.load_before.end()));
      EXPECT_EQ(loads.after_spread().own(), phase.load_after[rank]);
      EXPECT_DOUBLE_EQ(loads.tokens_after_spread().mean() * 5,
                       std::accumulate(phase.tokens_after.begin(), phase.tokens_after.end(), 0.0));
      EXPECT_EQ(loads.tokens_before_spread().own(), phase.tokens_before[rank]);
    }
  }
}

TEST(StepReply, HasTheLoadsOfAllRanksWhereTheyAreAskedFor) {
  const Described step(stream::FakeJob(5, 20), stream::MixedSamples(40));
  const pb::DescribeStepReply reply = step.Reply(2, /*all_loads=*/true);
  for (int i = 0; i < reply.loads_size(); ++i) {
    const PhasePlan& phase = step.plan->plan.phases[i];
    EXPECT_THAT(reply.loads(i).before(), testing::ElementsAreArray(phase.load_before));
    EXPECT_THAT(reply.loads(i).after(), testing::ElementsAreArray(phase.load_after));
    EXPECT_THAT(reply.loads(i).tokens_before(), testing::ElementsAreArray(phase.tokens_before));
    EXPECT_THAT(reply.loads(i).tokens_after(), testing::ElementsAreArray(phase.tokens_after));
  }
}

TEST(StepReply, MembersOfAGroupHaveThePartsOfTheFirst) {
  Job job = stream::FakeJob(4, 12);
  job.groups = {.given = true, .powers_of_two = true, .max_size = 4, .tokens_per_rank = 24, .ring = 1};
  job.groups.sizes = PoolSizes(4, job.groups);
  const Described step(std::move(job), stream::MixedSamples(40));
  const Plan& plan = step.plan->plan;
  const std::vector<std::shared_ptr<const stream::StepPlan>> plans(3, step.plan);
  std::set<uint32_t> sizes;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    pb::DescribeStepRequest request;
    request.set_rank(rank);
    pb::DescribeStepReply reply;
    ASSERT_TRUE(DescribeStep(*step.stream, step.builder, step.pool, 1ull << 30, plans, request, reply).ok());
    ASSERT_EQ(reply.groups_size(), static_cast<int>(plan.num_microbatches));
    uint32_t next = 0, several = 0;
    for (const pb::PartDescription& part : reply.parts()) {
      if (part.phase() != "llm") continue;
      const pb::ContextGroup& group = reply.groups(static_cast<int>(next));
      EXPECT_EQ(part.microbatch(), next++);
      EXPECT_EQ(part.phase_rank(), group.first());
      EXPECT_TRUE(group.first() <= rank && rank < group.first() + group.size());
      sizes.insert(group.size());
      several += group.size() > 1;
    }
    EXPECT_EQ(next, plan.num_microbatches);
    ASSERT_EQ(reply.ahead_size(), 2) << "a list for each of the next steps";
    EXPECT_EQ(reply.ahead(0).groups_size() > 0, several > 0);
  }
  EXPECT_GT(sizes.size(), 1u);
}

// Encoders on ranks 4 and 1, the llm on 2, 4 and 7.
TEST(StepReply, TellsARankOfOnePhaseNoLoadOfItsOwnInAnother) {
  Job job = stream::FakeJob(1, 12);
  for (PhaseSpec& phase : job.phases) {
    phase.ranks = phase.phase == Phase::kLlm ? std::vector<uint32_t>{2, 4, 7} : std::vector<uint32_t>{4, 1};
  }
  const Described step(std::move(job), stream::MixedSamples(40));
  const pb::DescribeStepReply seven = step.Reply(7), one = step.Reply(1);
  for (const pb::PhaseLoads& loads : seven.loads()) {
    EXPECT_EQ(loads.after_spread().has_own(), loads.phase() == "llm") << loads.phase();
  }
  for (const pb::PhaseLoads& loads : one.loads()) {
    EXPECT_EQ(loads.after_spread().has_own(), loads.phase() != "llm") << loads.phase();
  }
  for (const pb::PartDescription& part : one.parts()) EXPECT_EQ(part.phase_rank(), 1) << part.phase();
  ASSERT_GT(seven.routes_size(), 0);
  for (const pb::RouteSlice& route : seven.routes()) {
    EXPECT_EQ(route.num_ranks(), 4) << "1, 2, 4 and 7";
    uint64_t rows = 0;
    for (const pb::RouteSegment& segment : route.receive()) {
      EXPECT_THAT(segment.peer(), testing::AnyOf(0, 2)) << "ranks 1 and 4";
      rows += segment.rows();
    }
    EXPECT_EQ(rows, route.rows_out());
  }
}

}  // namespace
}  // namespace evenkeel::server
