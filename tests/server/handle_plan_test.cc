#include "server/handle_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace evenkeel::server {
namespace {

using testing::HasSubstr;

TEST(HandlePlan, LeavesHalfOfTheHandlesToData) {
  for (const uint64_t limit : {256u, 1024u, 4096u, 20000u, 1u << 20}) {
    for (const bool ucx : {false, true}) {
      const auto plan = PlanHandles(limit, 0, ucx);
      ASSERT_TRUE(plan.ok()) << plan.status();
      EXPECT_EQ(plan->reserved_from, limit / 2);
      EXPECT_LT(plan->max_connections + plan->max_silent, limit / 2);
      EXPECT_LT(plan->max_sessions * (ucx ? kHandlesOfUcxSession : kHandlesOfGrpcSession), limit / 2);
      EXPECT_LE(plan->max_sessions, kDefaultMaxSessions);
      EXPECT_TRUE(PlanHandles(limit, plan->max_sessions, ucx).ok());
    }
  }
  EXPECT_EQ(PlanHandles(1 << 20, 0, true)->max_sessions, kDefaultMaxSessions);
}

TEST(HandlePlan, RefusesSessionsThatDoNotFitAndSaysTheNumbers) {
  const absl::Status status = PlanHandles(1024, 4096, true).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  for (const char* number :
       {"1024 file handles", "4096 (--max-sessions) need 98976", "12 for each", "LimitNOFILE"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(number));
  }
  EXPECT_TRUE(PlanHandles(98976, 4096, true).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(PlanHandles(64, 0, false).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(PlanHandles(0, 0, false).status()));
}

}  // namespace
}  // namespace evenkeel::server
