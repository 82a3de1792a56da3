#include "reorder/pipeline/pipeline_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "reorder/pipeline/microbatch_order.h"
#include "tests/reorder/pipeline/event_simulation.h"
#include "tests/reorder/pipeline/pipeline_problems.h"

namespace evenkeel::reorder {
namespace {

std::vector<uint32_t> DrawOrder(const PipelineProblem& problem, uint64_t seed) {
  return AtRandom(problem.num_microbatches(), seed);
}

TEST(PipelineSchedule, AgreesWithAnEventSimulation) {
  Random random(1);
  for (int i = 0; i < 3000; ++i) {
    const PipelineProblem problem = DrawPipeline(random, 8, 24);
    ASSERT_TRUE(CheckPipeline(problem).ok());
    const std::vector<uint32_t> order = DrawOrder(problem, i);
    const std::optional<double> by_events = EventSimulation(problem, order).Run();
    ASSERT_TRUE(by_events) << "the schedule is stuck";
    ASSERT_DOUBLE_EQ(SimulatePipeline(problem, order).iteration_time, *by_events)
        << PipelineScheduleName(problem.schedule) << ", " << problem.stages << " stages, "
        << problem.virtual_stages << " virtual, " << problem.num_microbatches() << " microbatches";
  }
}

TEST(PipelineSchedule, TakesTheTextbookTimeWhereAllMicrobatchesAreAlike) {
  const uint32_t p = 4, m = 12;
  const auto uniform = [&](PipelineSchedule schedule, uint32_t v) {
    const size_t times = size_t{m} * p * v;
    return PipelineProblem{.schedule = schedule,
                           .stages = p,
                           .virtual_stages = v,
                           .forward = std::vector<double>(times, 1.0 / v),
                           .backward = std::vector<double>(times, 2.0 / v)};
  };
  const std::vector<uint32_t> order = InOrder(m);
  EXPECT_DOUBLE_EQ(SimulatePipeline(uniform(PipelineSchedule::k1F1B, 1), order).iteration_time,
                   3 * (m + p - 1));
  EXPECT_DOUBLE_EQ(SimulatePipeline(uniform(PipelineSchedule::kGPipe, 1), order).iteration_time,
                   3 * (m + p - 1));
  const PipelineTimeline interleaved =
      SimulatePipeline(uniform(PipelineSchedule::kInterleaved1F1B, 2), order);
  EXPECT_DOUBLE_EQ(interleaved.iteration_time, 3 * (m + (p - 1) / 2.0));
  EXPECT_DOUBLE_EQ(interleaved.bubble_share, 1 - m / (m + (p - 1) / 2.0));
}

TEST(PipelineSchedule, TimelineHasEveryOperationOnceAndNoneTogetherOnAStage) {
  Random random(2);
  for (int i = 0; i < 200; ++i) {
    const PipelineProblem problem = DrawPipeline(random, 5, 12);
    const PipelineTimeline timeline = SimulatePipeline(problem, DrawOrder(problem, i));
    ASSERT_EQ(timeline.ops.size(), 2 * problem.forward.size());
    std::map<std::tuple<bool, uint32_t, uint32_t>, int> seen;
    for (size_t k = 0; k < timeline.ops.size(); ++k) {
      const PipelineOp& op = timeline.ops[k];
      ++seen[{op.backward, op.microbatch, op.chunk}];
      EXPECT_EQ(op.stage, op.chunk % problem.stages);
      EXPECT_LE(op.end, timeline.iteration_time);
      if (k > 0 && timeline.ops[k - 1].stage == op.stage) {
        EXPECT_GE(op.start, timeline.ops[k - 1].end);
      }
    }
    EXPECT_EQ(seen.size(), timeline.ops.size());
    for (uint32_t s = 0; s < problem.stages; ++s) {
      EXPECT_NEAR(timeline.busy[s] + timeline.idle[s], timeline.iteration_time,
                  1e-9 * timeline.iteration_time);
    }
  }
}

TEST(PipelineSchedule, BoundIsBelowEveryOrder) {
  Random random(3);
  double closest = 0;
  for (int i = 0; i < 400; ++i) {
    const PipelineProblem problem = DrawPipeline(random, 4, 6);
    const double bound = PipelineBound(problem);
    std::vector<uint32_t> order = InOrder(problem.num_microbatches());
    do {
      const double time = SimulatePipeline(problem, order).iteration_time;
      ASSERT_LE(bound, time * (1 + 1e-12));
      if (time > 0) closest = std::max(closest, bound / time);
    } while (std::next_permutation(order.begin(), order.end()));
  }
  EXPECT_GT(closest, 0.999) << "a bound that nothing comes near";
}

TEST(PipelineClock, ATrialFromAPositionOnIsATrialFromTheStart) {
  Random random(4);
  for (int i = 0; i < 100; ++i) {
    const PipelineProblem problem = DrawPipeline(random, 6, 16);
    const uint32_t n = problem.num_microbatches();
    if (n < 2) continue;
    PipelineClock clock(problem);
    std::vector<uint32_t> kept = DrawOrder(problem, i);
    clock.Try(kept, 0);
    clock.Keep();
    for (int k = 0; k < 50; ++k) {
      std::vector<uint32_t> order = kept;
      const uint32_t a = random.Below(n), b = random.Below(n);
      std::swap(order[a], order[b]);
      ASSERT_EQ(clock.Try(order, std::min(a, b)), SimulatePipeline(problem, order).iteration_time);
      if (random.Below(2) == 0) clock.Keep(), kept = order;
    }
  }
}

TEST(PipelineSchedule, RefusesWhatIsNoPipeline) {
  const auto refused = [](const PipelineProblem& problem, const char* why) {
    const absl::Status status = CheckPipeline(problem);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(why), std::string::npos) << status;
  };
  refused({.stages = 0}, "at least one stage");
  refused({.stages = 2, .forward = {1, 1, 1}, .backward = {1, 1, 1}}, "every microbatch needs one of each");
  refused({.stages = 2, .forward = {1, 1}, .backward = {1}}, "every microbatch needs one of each");
  refused({.forward = {-1}, .backward = {1}}, "forward[0] is -1");
  refused({.virtual_stages = 2, .forward = {1, 1}, .backward = {1, 1}}, "interleaved_1f1b");
  refused({.schedule = PipelineSchedule::kInterleaved1F1B,
           .stages = 2,
           .forward = std::vector<double>(6, 1),
           .backward = std::vector<double>(6, 1)},
          "not a multiple");
  EXPECT_TRUE(CheckPipeline({}).ok()) << "no microbatch is a pipeline that takes no time";
  EXPECT_EQ(SimulatePipeline({}, {}).iteration_time, 0);
}

}  // namespace
}  // namespace evenkeel::reorder
