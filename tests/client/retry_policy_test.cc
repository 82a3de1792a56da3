#include "client/retry_policy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace evenkeel::client {
namespace {

using absl::Milliseconds;
using absl::Seconds;

TEST(RetryPolicy, TheLastQuarterOfRequestsIsTheHeadSteps) {
  EXPECT_EQ(MaxInFlight(/*is_head=*/true), 64u);
  EXPECT_EQ(MaxInFlight(/*is_head=*/false), 48u);
}

TEST(RetryPolicy, DuplicatesStayWithinOneInTwenty) {
  EXPECT_FALSE(MayDuplicate(0, 0));
  EXPECT_FALSE(MayDuplicate(0, 19));
  EXPECT_TRUE(MayDuplicate(0, 20));
  EXPECT_FALSE(MayDuplicate(1, 39));
  EXPECT_TRUE(MayDuplicate(1, 40));
  uint64_t duplicates = 0;
  for (uint64_t requests = 1; requests <= 1000; ++requests) {
    if (MayDuplicate(duplicates, requests)) ++duplicates;
  }
  EXPECT_EQ(duplicates, 50u);
}

TEST(RetryPolicy, DataIsAtFaultAfterThreeWorkersOrEnoughAttempts) {
  EXPECT_FALSE(DataIsAtFault(2, 2, 3));
  EXPECT_TRUE(DataIsAtFault(3, 3, 3));
  EXPECT_FALSE(DataIsAtFault(3, 2, 3)) << "a third worker is there to ask";
  EXPECT_FALSE(DataIsAtFault(2, 2, 2));
  EXPECT_TRUE(DataIsAtFault(3, 1, 1));
  EXPECT_TRUE(DataIsAtFault(3, 2, 2));
  EXPECT_FALSE(DataIsAtFault(11, 2, 100));
  EXPECT_TRUE(DataIsAtFault(12, 2, 100)) << "three distinct workers are never reached";
}

TEST(RetryPolicy, LostWorkersAreLeftAloneTwiceAsLongEachTime) {
  absl::Duration expected = Milliseconds(200);
  for (int failures = 0; failures < 6; ++failures, expected *= 2) {
    EXPECT_EQ(AfterLoss(failures).among_others, expected);
    EXPECT_EQ(AfterLoss(failures).alone, std::min(expected, Milliseconds(700)));
  }
  for (int failures : {7, 10, 1000000, std::numeric_limits<int>::max()}) {
    EXPECT_EQ(AfterLoss(failures).among_others, Seconds(15));
    EXPECT_EQ(AfterLoss(failures).alone, Milliseconds(700));
  }
}

TEST(RetryPolicy, AnEndedSessionIsReopenedAlmostAtOnce) {
  EXPECT_EQ(AfterEndOfSession(0).among_others, Milliseconds(20));
  EXPECT_EQ(AfterEndOfSession(1).among_others, Milliseconds(40));
  EXPECT_EQ(AfterEndOfSession(100).among_others, Seconds(15));
  EXPECT_EQ(AfterEndOfSession(100).alone, Milliseconds(700));
}

TEST(RetryPolicy, GreyTimeDoublesUpToItsMaximum) {
  EXPECT_EQ(GreyTime(Seconds(10), 0, Seconds(120)), Seconds(10));
  EXPECT_EQ(GreyTime(Seconds(10), 3, Seconds(120)), Seconds(80));
  EXPECT_EQ(GreyTime(Seconds(10), 4, Seconds(120)), Seconds(120));
  EXPECT_EQ(GreyTime(Seconds(300), 30, Seconds(120)), Seconds(300)) << "never shorter than the first";
}

TEST(RetryPolicy, EachTrialHasTwiceTheTimeOfTheLast) {
  EXPECT_EQ(TrialPatience(Milliseconds(200), 1, Seconds(5)), Milliseconds(200));
  EXPECT_EQ(TrialPatience(Milliseconds(200), 4, Seconds(5)), Milliseconds(1600));
  EXPECT_EQ(TrialPatience(Milliseconds(200), 30, Seconds(5)), Seconds(5));
  EXPECT_EQ(TrialPatience(Seconds(0), 1, Seconds(5)), Milliseconds(10)) << "before any part was measured";
  EXPECT_EQ(TrialPatience(Seconds(9), 0, Seconds(5)), Seconds(5));
}

TEST(RetryPolicy, FailedPartsPauseTwiceAsLongEachTime) {
  EXPECT_EQ(AfterFailure(1), Milliseconds(100));
  EXPECT_EQ(AfterFailure(2), Milliseconds(200));
  EXPECT_EQ(AfterFailure(7), Milliseconds(6400));
  EXPECT_EQ(AfterFailure(kMaxFailedAttempts), Milliseconds(6400));
}

TEST(RetryPolicy, TroublesOfAMachinePauseAtMostSevenTenths) {
  EXPECT_EQ(AfterTrouble(0), Milliseconds(100));
  EXPECT_EQ(AfterTrouble(2), Milliseconds(400));
  EXPECT_EQ(AfterTrouble(3), Milliseconds(700));
  EXPECT_EQ(AfterTrouble(1000), Milliseconds(700));
}

TEST(RetryPolicy, ARefusalsTimeIsBounded) {
  EXPECT_EQ(AfterRefusal(0.5), Milliseconds(500));
  EXPECT_EQ(AfterRefusal(1e300), Seconds(30));
  for (double seconds : {0.0, -5.0, 1e-9, std::nan("")}) EXPECT_EQ(AfterRefusal(seconds), Milliseconds(10));
}

TEST(RetryPolicy, PatienceDoublesWithinTheStepTimeout) {
  EXPECT_EQ(NextPatience(Seconds(10), Seconds(100)), Seconds(20));
  EXPECT_EQ(NextPatience(Seconds(80), Seconds(100)), Seconds(100));
}

TEST(RetryPolicy, JitterOnlyProlongs) {
  Jitter jitter;
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration pause = jitter(Seconds(1));
    EXPECT_GE(pause, Seconds(1));
    EXPECT_LE(pause, Milliseconds(1500));
  }
}

}  // namespace
}  // namespace evenkeel::client
