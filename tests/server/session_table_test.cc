#include "server/session_table.h"

#include <gtest/gtest.h>

#include "tests/server/fake_source.h"

namespace evenkeel::server {
namespace {

const transport::Secret kSecret = {1, 2, 3};

TEST(SessionTable, IsBoundedAndFreesThePlaceOfAFailedConnection) {
  FakeTransport source;
  SessionTable table({.max_sessions = 2});
  EXPECT_EQ(table.Open(0, source, "bad", kSecret).status().code(), absl::StatusCode::kInvalidArgument);
  const auto a = table.Open(0, source, "", kSecret), b = table.Open(1, source, "", kSecret);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE((*a)->id, (*b)->id);
  EXPECT_EQ(table.Open(2, source, "", kSecret).status().code(), absl::StatusCode::kResourceExhausted);
  table.Close((*a)->id);
  EXPECT_TRUE(table.Open(2, source, "", kSecret).ok());
  EXPECT_EQ(source.connected(), 2);
}

TEST(SessionTable, EndsIdleSessionsButNoneWithAnOpenRequest) {
  FakeTransport source;
  SessionTable table({.idle = absl::ZeroDuration()});
  const auto idle = table.Open(0, source, "", kSecret), busy = table.Open(1, source, "", kSecret);
  ASSERT_TRUE(idle.ok() && busy.ok());
  {
    const OpenRequest request(*busy);
    EXPECT_EQ(table.Sweep(), 1);
    EXPECT_EQ(table.Find((*idle)->id).status().code(), absl::StatusCode::kNotFound);
    EXPECT_TRUE(table.Find((*busy)->id).ok());
  }
  EXPECT_EQ(table.Sweep(), 1);
  EXPECT_EQ(source.connected(), 0);
}

TEST(SessionTable, SweepsSessionsWhosePeerIsGone) {
  FakeTransport source;
  SessionTable table({.idle = absl::InfiniteDuration()});
  const auto session = table.Open(0, source, "", kSecret);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(table.Sweep(), 0);
  (*session)->dead = true;
  EXPECT_EQ(table.Find((*session)->id).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(table.Sweep(), 1);
  EXPECT_EQ(source.connected(), 0);
}

TEST(SessionTable, DisconnectsAllWhenItEnds) {
  FakeTransport source;
  {
    SessionTable table({});
    ASSERT_TRUE(table.Open(0, source, "", kSecret).ok());
  }
  EXPECT_EQ(source.connected(), 0);
}

}  // namespace
}  // namespace evenkeel::server
