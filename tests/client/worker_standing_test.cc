#include "client/worker_standing.h"

#include <gtest/gtest.h>

#include "tests/usual_phases.h"

namespace evenkeel::client {
namespace {

using Trust = WorkerStanding::Trust;

constexpr WorkerStanding::Work kDescriptions = std::nullopt;
constexpr absl::Duration kGrey = absl::Seconds(10);

class Standing : public testing::Test {
 protected:
  // Of a request made a timeout ago, that has not moved since.
  void Stall(WorkerStanding::Work work = kVisionPhase) {
    standing_.Stall(work, now_ - kGrey, now_ - kGrey, now_, kGrey);
  }
  void Finish(int count, WorkerStanding::Work work = kVisionPhase) {
    for (int i = 0; i < count; ++i) {
      now_ += absl::Milliseconds(10);
      standing_.Finish(work, now_ - absl::Milliseconds(5), now_);
    }
  }
  Trust Now(WorkerStanding::Work work = kVisionPhase) const { return standing_.TrustIn(work, now_); }

  WorkerStanding standing_;
  absl::Time now_ = absl::FromUnixSeconds(1000000);
};

TEST_F(Standing, IsGoodAtFirst) {
  EXPECT_EQ(Now(), Trust::kTrusted);
  EXPECT_EQ(Now(kDescriptions), Trust::kTrusted);
}

TEST_F(Standing, AStallCountsForAllWorkThatDidNotMoveMeanwhile) {
  standing_.Move(Phase::kLlm, now_ - absl::Seconds(1));
  standing_.Move(kAudioPhase, now_ - absl::Seconds(20));
  Stall(kVisionPhase);
  EXPECT_EQ(Now(kVisionPhase), Trust::kGrey);
  EXPECT_EQ(Now(kAudioPhase), Trust::kGrey) << "it moved, but long ago";
  EXPECT_EQ(Now(kDescriptions), Trust::kGrey);
  EXPECT_EQ(Now(Phase::kLlm), Trust::kTrusted);
}

TEST_F(Standing, WhatEndedJustWhenTheRequestStoppedShowsNothing) {
  standing_.Move(Phase::kLlm, now_ - kGrey + absl::Milliseconds(20));
  Stall(kVisionPhase);
  EXPECT_EQ(Now(Phase::kLlm), Trust::kGrey);
}

TEST_F(Standing, RequestsThatStandStillTogetherCountOnce) {
  const absl::Time asked = now_ - kGrey;
  for (int i = 0; i < 5; ++i) standing_.Stall(kVisionPhase, asked, asked, now_, kGrey);
  EXPECT_EQ(standing_.stalls(kVisionPhase), 1);
  now_ += absl::Milliseconds(50);
  standing_.Stall(kVisionPhase, asked, asked, now_, kGrey);
  EXPECT_EQ(standing_.stalls(kVisionPhase), 1);
}

TEST_F(Standing, GreyTimeDoublesUpToALimit) {
  absl::Duration expected = kGrey;
  for (int i = 0; i < 40; ++i) {
    Stall();
    ASSERT_EQ(standing_.TrustIn(kVisionPhase, now_ + expected - absl::Milliseconds(1)), Trust::kGrey) << i;
    ASSERT_EQ(standing_.TrustIn(kVisionPhase, now_ + expected), Trust::kOnTrial) << i;
    now_ += expected + 2 * kGrey;
    expected = std::min(2 * expected, WorkerStanding::kLongestGrey);
  }
}

TEST_F(Standing, AWorkerThatMovesAgainIsOnTrialAtOnce) {
  Stall();
  now_ += absl::Seconds(1);
  standing_.Move(kVisionPhase, now_);
  EXPECT_EQ(Now(), Trust::kOnTrial);
}

TEST_F(Standing, TrustReturnsAfterFinishedRequestsMoreOfThemAfterMoreStalls) {
  Stall();
  Finish(1);
  EXPECT_EQ(Now(), Trust::kOnTrial);
  Finish(1);
  EXPECT_EQ(Now(), Trust::kTrusted);
  now_ += 2 * kGrey;
  Stall();
  Finish(3);
  EXPECT_EQ(Now(), Trust::kOnTrial) << "the first stall is remembered";
  Finish(1);
  EXPECT_EQ(Now(), Trust::kTrusted);
  Finish(WorkerStanding::kForgivenAfter);
  EXPECT_EQ(standing_.stalls(kVisionPhase), 0);
  EXPECT_EQ(Now(), Trust::kTrusted);
}

TEST_F(Standing, RequestsOfBeforeTheStallProveNothing) {
  Stall();
  for (int i = 0; i < 10; ++i) standing_.Finish(kVisionPhase, now_ - kGrey, now_ + absl::Seconds(1));
  now_ += absl::Seconds(1);
  EXPECT_EQ(Now(), Trust::kOnTrial);
}

TEST_F(Standing, APassedOverTrialCountsOnceAndForItsOwnWorkAlone) {
  Stall(kVisionPhase);
  now_ += kGrey;
  ASSERT_EQ(Now(kVisionPhase), Trust::kOnTrial);
  ASSERT_EQ(Now(kAudioPhase), Trust::kOnTrial);
  const absl::Time asked = now_;
  now_ += absl::Milliseconds(200);
  for (int i = 0; i < 3; ++i) standing_.PassOver(kVisionPhase, asked, now_, kGrey);
  EXPECT_EQ(standing_.stalls(kVisionPhase), 2);
  EXPECT_EQ(Now(kVisionPhase), Trust::kGrey);
  EXPECT_EQ(standing_.TrustIn(kVisionPhase, now_ + 2 * kGrey), Trust::kOnTrial) << "twice as long";
  EXPECT_EQ(Now(kAudioPhase), Trust::kOnTrial);
  EXPECT_EQ(standing_.stalls(kAudioPhase), 1);
}

TEST_F(Standing, FinishedTextsDoNotForgiveDecodersThatStandStill) {
  Stall(kVisionPhase);
  Finish(100, Phase::kLlm);
  EXPECT_EQ(Now(Phase::kLlm), Trust::kTrusted);
  EXPECT_EQ(Now(kVisionPhase), Trust::kGrey);
}

}  // namespace
}  // namespace evenkeel::client
