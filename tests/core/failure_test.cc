#include "core/failure.h"

#include <gtest/gtest.h>

#include "core/status.h"

namespace evenkeel {
namespace {

TEST(FailureKind, StaysWithTheStatusWhateverIsAddedToItsMessage) {
  const absl::Status first = WithKind(absl::NotFoundError("a.tar"), FailureKind::kMachine);
  EXPECT_EQ(KindOf(AddContext(AddContext(first, "step 3"), "rank 0")), FailureKind::kMachine);
}

TEST(FailureKind, IsDecidedByWhoSeesItFirst) {
  const absl::Status data = WithKind(absl::FailedPreconditionError("checksum"), FailureKind::kData);
  EXPECT_EQ(KindOf(WithKind(data, FailureKind::kMachine)), FailureKind::kData);
  EXPECT_TRUE(WithKind(absl::OkStatus(), FailureKind::kMachine).ok());
}

TEST(FailureKind, IsNeverReadFromAMessage) {
  EXPECT_EQ(KindOf(absl::InternalError("No such file or directory; out of memory; EIO")),
            FailureKind::kAttempt);
  EXPECT_EQ(KnownKind(absl::UnavailableError("")), std::nullopt);
}

TEST(FailureKind, WithoutAMarkFollowsTheDefinitionOfTheCode) {
  for (const absl::Status& later :
       {absl::UnavailableError(""), absl::AbortedError(""), absl::CancelledError("")})
    EXPECT_EQ(KindOf(later), FailureKind::kMachine) << later;
  for (const absl::Status& other : {absl::InternalError(""), absl::DataLossError(""), absl::NotFoundError(""),
                                    absl::OutOfRangeError(""), absl::FailedPreconditionError("")})
    EXPECT_EQ(KindOf(other), FailureKind::kAttempt) << other;
}

TEST(FailureKind, OfAnotherReleaseIsAnAttempt) {
  EXPECT_EQ(FailureKindFrom(2), FailureKind::kMachine);
  EXPECT_EQ(FailureKindFrom(3), FailureKind::kNotYet);
  EXPECT_EQ(FailureKindFrom(4), FailureKind::kAttempt);
  EXPECT_EQ(FailureKindFrom(-1), FailureKind::kAttempt);
}

}  // namespace
}  // namespace evenkeel
