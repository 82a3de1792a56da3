#include "reorder/pipeline/microbatch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/reorder/pipeline/pipeline_problems.h"

namespace evenkeel::reorder {
namespace {

double TimeOf(const PipelineProblem& pipeline, const std::string& algorithm, uint64_t seed = 0,
              uint32_t iterations = kOrderIterations) {
  const auto outcome =
      SolveOrder({.pipeline = pipeline, .algorithm = algorithm, .seed = seed, .iterations = iterations});
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  std::vector<uint32_t> sorted = outcome->order;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, InOrder(pipeline.num_microbatches())) << algorithm << " is no permutation";
  EXPECT_GE(outcome->timeline.iteration_time * (1 + 1e-12), outcome->bound);
  return outcome->timeline.iteration_time;
}

double BestOfAll(const PipelineProblem& pipeline) {
  std::vector<uint32_t> order = InOrder(pipeline.num_microbatches());
  PipelineClock clock(pipeline);
  double best = clock.Try(order, 0);
  while (std::next_permutation(order.begin(), order.end())) best = std::min(best, clock.Try(order, 0));
  return best;
}

TEST(MicrobatchOrder, OursIsNeverWorseThanTheGivenOrDistTrains) {
  Random random(11);
  for (int i = 0; i < 300; ++i) {
    const PipelineProblem pipeline = DrawPipeline(random, 6, 20);
    const double ours = TimeOf(pipeline, "local_search", i, 500);
    EXPECT_LE(ours, TimeOf(pipeline, "given"));
    EXPECT_LE(ours, TimeOf(pipeline, "disttrain"));
  }
}

TEST(MicrobatchOrder, EveryAlgorithmKeepsEveryInvariantOnRandomPipelines) {
  Random random(17);
  static const char* const kNames[] = {"given", "random", "disttrain", "local_search"};
#ifdef EVENKEEL_SANITIZED
  const int problems = 1500;
#else
  const int problems = 10000;
#endif
  for (int i = 0; i < problems; ++i) {
    PipelineProblem pipeline = DrawPipeline(random, 6, 12);
    const double scale = i % 7 == 0 ? 1e200 : i % 7 == 1 ? 0 : 1;  // giant, and of no length
    for (auto* times : {&pipeline.forward, &pipeline.backward}) {
      for (double& time : *times) time *= scale;
    }
    const double time = TimeOf(pipeline, kNames[i % 4], i, 30);  // a permutation, not below the bound
    ASSERT_TRUE(std::isfinite(time)) << i;
    ASSERT_FALSE(HasFailure()) << i;
  }
}

TEST(MicrobatchOrder, UpToEightMicrobatchesOursIsTheBestOfAll) {
  Random random(12);
  for (int i = 0; i < 12; ++i) {
    const PipelineProblem pipeline = DrawPipeline(random, 4, 8);
    EXPECT_DOUBLE_EQ(TimeOf(pipeline, "local_search"), BestOfAll(pipeline));
  }
}

TEST(MicrobatchOrder, TheSearchIsWithinOnePerCentOfTheBestOfAllOrders) {
  Random random(13);
  double sum = 0;
  const int problems = 16;
  for (int i = 0; i < problems; ++i) {
    PipelineProblem shape{.schedule = static_cast<PipelineSchedule>(i % 2), .stages = 4};
    if (i % 2 == 1) shape.virtual_stages = 2;
    for (size_t k = 0; k < 8 * shape.num_chunks(); ++k) {
      shape.forward.push_back(random.Uniform());
      shape.backward.push_back(2 * random.Uniform());
    }
    sum += TimeOf(shape, "local_search", i, 5000) / BestOfAll(shape);
  }
  EXPECT_LE(sum / problems, 1.01);
}

TEST(MicrobatchOrder, DistTrainBeginsWithTheSmallestAndEndsWithTheNextSmallest) {
  Random random(14);
  for (int i = 0; i < 100; ++i) {
    PipelineProblem pipeline{.stages = 2 + static_cast<uint32_t>(random.Below(4))};
    const uint32_t p = pipeline.stages, microbatches = 1 + static_cast<uint32_t>(random.Below(20));
    std::vector<std::pair<double, uint32_t>> by_size;
    for (uint32_t m = 0; m < microbatches; ++m) {
      const double size = random.Uniform();
      by_size.emplace_back(size, m);
      pipeline.forward.insert(pipeline.forward.end(), p, size);
      pipeline.backward.insert(pipeline.backward.end(), p, 2 * size);
    }
    std::sort(by_size.begin(), by_size.end());
    const auto order = *OrderMicrobatches({.pipeline = pipeline, .algorithm = "disttrain"});
    ASSERT_EQ(order.size(), microbatches);
    EXPECT_EQ(order.front(), by_size.front().second);
    const size_t rear = std::min(p - 1, microbatches - 1);
    for (size_t k = 0; k < rear; ++k) EXPECT_EQ(order[microbatches - rear + k], by_size[1 + k].second);
  }
}

// Two stages. The first microbatch returns to the first stage 3 after its forward there, and a forward
// of 3 fills that time.
TEST(MicrobatchOrder, DistTrainFillsIntervalsWithForwardsThatFit) {
  PipelineProblem pipeline{.stages = 2};
  const auto add = [&](double f0, double b0, double f1, double b1) {
    pipeline.forward.insert(pipeline.forward.end(), {f0, f1});
    pipeline.backward.insert(pipeline.backward.end(), {b0, b1});
  };
  add(4, 2, 2, 4);
  add(3, 2, 2, 4);
  add(9, 2, 2, 4);
  add(0.5, 1, 1, 2);  // the smallest
  add(1, 2, 1, 3);    // the next: last
  const auto order = *OrderMicrobatches({.pipeline = pipeline, .algorithm = "disttrain"});
  EXPECT_EQ(order[0], 3);
  EXPECT_EQ(order[1], 1) << "the interval of 3 takes the forward of 3";
  EXPECT_EQ(order[4], 4);
}

TEST(MicrobatchOrder, TheSameProblemHasTheSameOrder) {
  Random random(15);
  for (int i = 0; i < 20; ++i) {
    OrderProblem problem{.pipeline = DrawPipeline(random, 5, 30), .seed = 5, .iterations = 2000};
    const std::vector<uint32_t> order = *OrderMicrobatches(problem);
    EXPECT_EQ(*OrderMicrobatches(problem), order);
    // Also with the schedule of another pipeline of the same shape.
    PipelineProblem other = problem.pipeline;
    for (double& time : other.forward) time = random.Uniform();
    const PipelineClock alike(other);
    problem.alike = &alike;
    EXPECT_EQ(*OrderMicrobatches(problem), order);
  }
}

TEST(MicrobatchOrder, ClosesMoreOfTheGapFromARandomOrderThanDistTrain) {
  const std::vector<SampleLengths> trace = DrawOmniTrace(77, 4000);
  Random random(16);
  double random_gap = 0, disttrain_gap = 0, gap = 0;
  for (int i = 0; i < 24; ++i) {
    const PipelineProblem shape{.stages = 4};
    const PipelineProblem pipeline =
        DrawFromTrace(trace, shape, 16, 1 + i % 4, static_cast<EncoderAt>(i % 2), random);
    const double best = TimeOf(pipeline, "local_search", 1000 + i, 4 * kOrderIterations);
    random_gap += TimeOf(pipeline, "random", i) / best - 1;
    disttrain_gap += TimeOf(pipeline, "disttrain") / best - 1;
    gap += std::max(0.0, TimeOf(pipeline, "local_search", i) / best - 1);
  }
  EXPECT_LT(gap, 0.1 * random_gap) << "of a gap of " << random_gap;
  EXPECT_LT(gap, disttrain_gap);
  EXPECT_LT(disttrain_gap, random_gap);
}

TEST(MicrobatchOrder, NamesTheAlgorithmsItKnows) {
  const auto order = OrderMicrobatches({.algorithm = "best"});
  EXPECT_EQ(order.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(order.status().message().find("given, random, disttrain, local_search"), std::string::npos);
}

}  // namespace
}  // namespace evenkeel::reorder
