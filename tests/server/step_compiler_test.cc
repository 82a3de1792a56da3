#include "server/step_compiler.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/time/clock.h"

namespace evenkeel::server {
namespace {

void WaitUntil(const std::function<bool()>& done) {
  for (int i = 0; i < 6000 && !done(); ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_TRUE(done());
}

TEST(StepCompiler, WorksOnNothingUnlessAsked) {
  std::atomic<int> slices{0};
  StepCompiler compiler([&](uint64_t) -> absl::StatusOr<bool> {
    ++slices;
    return true;
  });
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(slices, 0);
  EXPECT_TRUE(compiler.Want(7).ok());
  WaitUntil([&] { return slices == 1; });
  absl::SleepFor(absl::Milliseconds(50));
  EXPECT_EQ(slices, 1) << "a step that is reached needs no more";
}

TEST(StepCompiler, StopsWorkingWhenNobodyAsksAnyMore) {
  std::atomic<int> slices{0};
  const auto endless = [&](uint64_t) -> absl::StatusOr<bool> {
    ++slices;
    absl::SleepFor(absl::Milliseconds(1));
    return false;
  };
  StepCompiler compiler(endless, absl::Milliseconds(100));
  ASSERT_TRUE(compiler.Want(7).ok());
  WaitUntil([&] {
    const int before = slices;
    absl::SleepFor(absl::Milliseconds(200));
    return slices > 0 && slices == before;
  });
  const int before = slices;
  ASSERT_TRUE(compiler.Want(7).ok());
  WaitUntil([&] { return slices > before; });
}

TEST(StepCompiler, TellsWhoAsksAgainWhatEndedTheWork) {
  std::atomic<int> slices{0};
  StepCompiler compiler([&](uint64_t) -> absl::StatusOr<bool> {
    ++slices;
    return absl::DataLossError("a damaged file");
  });
  ASSERT_TRUE(compiler.Want(7).ok());
  absl::Status told;
  WaitUntil([&] {
    if (told.ok()) told = compiler.Want(7);
    return !told.ok();
  });
  EXPECT_EQ(told.message(), "a damaged file");
}

TEST(StepCompiler, ServesTheLowestStepFirst) {
  std::atomic<bool> held{true};
  std::atomic<uint64_t> first{0}, second{0};
  StepCompiler compiler([&](uint64_t step) -> absl::StatusOr<bool> {
    while (step == 50 && held) absl::SleepFor(absl::Milliseconds(1));
    if (step != 50) (first == 0 ? first : second) = step;
    return true;
  });
  ASSERT_TRUE(compiler.Want(50).ok());
  ASSERT_TRUE(compiler.Want(90).ok());
  ASSERT_TRUE(compiler.Want(70).ok());
  held = false;
  WaitUntil([&] { return second != 0; });
  // Either is served before the thread looks at 50.
  EXPECT_LT(first, second);
}

TEST(StepCompiler, EndsWithinOneSliceWhateverIsLeftToDo) {
  std::atomic<int> slices{0};
  StepCompiler compiler([&](uint64_t) -> absl::StatusOr<bool> {
    ++slices;
    absl::SleepFor(absl::Milliseconds(5));
    return false;
  });
  for (uint64_t step = 0; step < 1000; ++step) ASSERT_TRUE(compiler.Want(step).ok());
  WaitUntil([&] { return slices > 0; });
  const int before = slices;
  compiler.Stop();
  EXPECT_LE(slices, before + 2);
  EXPECT_TRUE(absl::IsCancelled(compiler.Want(3)));
}

}  // namespace
}  // namespace evenkeel::server
