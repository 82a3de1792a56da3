// Plans are computed once, kept within a budget, and ahead of need only when nobody waits.
#include "server/step_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <thread>

#include "absl/time/clock.h"
#include "tests/stream/fake_stream.h"

namespace evenkeel::server {
namespace {

stream::StepPlan PlanOfSize(uint64_t step, size_t samples = 10) {
  stream::StepPlan plan;
  plan.plan.step = step;
  plan.plan.samples.resize(samples);
  return plan;
}

// A source that counts, and may be held until it is let go.
class Source {
 public:
  StepPlanner::Source function() {
    return [this](uint64_t step) { return Compute(step); };
  }
  void Hold() {
    MutexLock lock(mutex_);
    held_ = true;
  }
  void LetGo() {
    MutexLock lock(mutex_);
    held_ = false;
    changed_.NotifyAll();
  }
  std::vector<uint64_t> order() {
    MutexLock lock(mutex_);
    return order_;
  }
  void WaitForCalls(size_t count) {
    MutexLock lock(mutex_);
    while (order_.size() < count) changed_.Wait(mutex_);
  }

 private:
  absl::StatusOr<stream::StepPlan> Compute(uint64_t step) {
    MutexLock lock(mutex_);
    order_.push_back(step);
    changed_.NotifyAll();
    while (held_) changed_.Wait(mutex_);
    if (step == 13) return absl::OutOfRangeError("no step 13");
    return PlanOfSize(step);
  }
  Mutex mutex_;
  CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> order_ ABSL_GUARDED_BY(mutex_);
};

TEST(StepPlanner, ComputesAPlanOnceForAllWhoAskAtOnce) {
  Source source;
  source.Hold();
  StepPlanner planner(source.function(), {.steps_ahead = 0, .num_threads = 3}, nullptr);
  std::atomic<int> answers{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      absl::StatusOr<StepPlanner::PlanPtr> plan = planner.Wait(5);
      answers += plan.ok() && (*plan)->plan.step == 5;
    });
  }
  source.WaitForCalls(1);
  source.LetGo();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answers, 8);
  EXPECT_EQ(source.order().size(), 1);
}

TEST(StepPlanner, StopAnswersThoseWhoWaitBeforeThePlanInHandIsDone) {
  Source source;
  source.Hold();
  StepPlanner planner(source.function(), {.steps_ahead = 0, .num_threads = 1}, nullptr);
  std::atomic<int> cancelled{0};
  const auto count = [&](const absl::StatusOr<StepPlanner::PlanPtr>& plan) {
    cancelled += absl::IsCancelled(plan.status());
    // Only now, when all have had their answer, does the plan in hand go on: Stop must not wait for it first.
    if (cancelled == 3) source.LetGo();
  };
  for (uint64_t step : {5, 6, 6}) planner.Get(step, count);
  source.WaitForCalls(1);
  planner.Stop();
  EXPECT_EQ(cancelled, 3);
  EXPECT_EQ(source.order(), std::vector<uint64_t>({5}));
  planner.Get(7, count);
  EXPECT_EQ(cancelled, 4);
}

TEST(StepPlanner, ForgetsThePlanUsedLongestAgoWhenItsMemoryIsFull) {
  Source source;
  const uint64_t one = stream::StepPlanBytes(PlanOfSize(0));
  StepPlanner planner(source.function(), {.cache_bytes = 2 * one, .steps_ahead = 0}, nullptr);
  for (uint64_t step : {1, 2, 1, 3, 1, 2}) ASSERT_TRUE(planner.Wait(step).ok());
  EXPECT_THAT(source.order(), testing::ElementsAre(1, 2, 3, 2));
  EXPECT_LE(planner.cached_bytes(), 2 * one);
}

TEST(StepPlanner, KeepsABoundedNumberOfPlansHoweverSmallTheyAre) {
  Source source;
  StepPlanner planner(source.function(), {.max_plans = 3, .steps_ahead = 0}, nullptr);
  for (uint64_t step : {1, 2, 3, 4, 5}) EXPECT_TRUE(planner.Wait(step).ok());
  EXPECT_EQ(planner.cached_bytes(), 3 * stream::StepPlanBytes(PlanOfSize(0)));
  for (uint64_t step : {3, 4, 5}) EXPECT_TRUE(planner.Wait(step).ok());
  EXPECT_THAT(source.order(), testing::ElementsAre(1, 2, 3, 4, 5));
}

#ifndef EVENKEEL_SANITIZED
// Sanitizers bring an allocator of their own.
TEST(StepPlanner, CountsWhatTheAllocatorHoldsForAPlan) {
  const auto stream = stream::MakeFakeStream(stream::FakeJob(16, 400), stream::MixedSamples(1000));
  const auto used = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<double>(info.uordblks + info.hblkhd);
  };
  ASSERT_TRUE(stream::PlanStep(*stream, 0).ok());
  std::vector<std::unique_ptr<stream::StepPlan>> plans(40);
  const double before = used();
  double counted = 0;
  for (uint64_t step = 0; step < plans.size(); ++step) {
    plans[step] = std::make_unique<stream::StepPlan>(*stream::PlanStep(*stream, step));
    counted += static_cast<double>(stream::StepPlanBytes(*plans[step]));
  }
  const double held = used() - before;
  EXPECT_LE(held, 1.05 * counted);
  EXPECT_GE(held, 0.8 * counted);
}
#endif

TEST(StepPlanner, KeepsTheLastPlanHoweverLargeItIs) {
  Source source;
  StepPlanner planner(source.function(), {.cache_bytes = 1, .steps_ahead = 0}, nullptr);
  for (uint64_t step : {1, 1, 2, 2}) ASSERT_TRUE(planner.Wait(step).ok());
  EXPECT_THAT(source.order(), testing::ElementsAre(1, 2));
}

TEST(StepPlanner, PlansTheNextStepsAheadOfNeed) {
  Source source;
  StepPlanner planner(source.function(), {.steps_ahead = 3}, nullptr);
  ASSERT_TRUE(planner.Wait(7).ok());
  source.WaitForCalls(4);
  EXPECT_THAT(source.order(), testing::ElementsAre(7, 8, 9, 10));
}

TEST(StepPlanner, AnswersWhoWaitsBeforeItPlansAhead) {
  Source source;
  StepPlanner planner(source.function(), {.steps_ahead = 2}, nullptr);
  ASSERT_TRUE(planner.Wait(0).ok());
  source.Hold();  // one of steps 1 and 2 may be under way by now, or both done
  planner.Get(50, [](auto) {});
  planner.Get(40, [](auto) {});
  source.LetGo();
  ASSERT_TRUE(planner.Wait(50).ok());  // it may be the first of the two, or the second
  ASSERT_TRUE(planner.Wait(40).ok());
  const std::vector<uint64_t> order = source.order();
  const auto at = [&](uint64_t step) { return std::find(order.begin(), order.end(), step) - order.begin(); };
  EXPECT_LT(at(40), at(41));
  EXPECT_LT(at(50), at(51));
}

TEST(StepPlanner, HandsErrorsToAllAndKeepsNone) {
  Source source;
  StepPlanner planner(source.function(), {.steps_ahead = 0}, nullptr);
  EXPECT_EQ(planner.Wait(13).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(planner.Wait(13).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(source.order().size(), 2);
}

TEST(StepPlanner, RefusesMoreWaitersThanItsBound) {
  Source source;
  source.Hold();
  std::atomic<int> refused{0};  // longer than the planner, which answers the two that wait when it ends
  StepPlanner planner(source.function(), {.steps_ahead = 0, .max_waiting = 2}, nullptr);
  for (int i = 0; i < 5; ++i) {
    planner.Get(i, [&](auto plan) { refused += absl::IsResourceExhausted(plan.status()); });
  }
  EXPECT_EQ(refused, 3);
  source.LetGo();
}

TEST(StepPlanner, CancelsWhoStillWaitsWhenItEnds) {
  Source source;
  source.Hold();
  std::atomic<int> cancelled{0}, answered{0};
  {
    auto planner =
        std::make_unique<StepPlanner>(source.function(), StepPlanner::Options{.steps_ahead = 0}, nullptr);
    for (int i = 0; i < 4; ++i) {
      planner->Get(i, [&](auto plan) { ++(absl::IsCancelled(plan.status()) ? cancelled : answered); });
    }
    source.WaitForCalls(1);
    std::thread end([&] { planner.reset(); });
    source.LetGo();
    end.join();
  }
  EXPECT_EQ(cancelled + answered, 4);
}

}  // namespace
}  // namespace evenkeel::server
