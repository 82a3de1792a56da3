#include "cli/progress.h"

#include <gtest/gtest.h>

#include <atomic>
#include <sstream>
#include <vector>

namespace evenkeel::cli {
namespace {

// Time passes where the test says so.
class ProgressTest : public ::testing::Test {
 protected:
  Progress Make(bool is_terminal) {
    return Progress(40, "shards", out_, is_terminal, [this] { return now_; });
  }
  // What was written since the last call.
  std::string Written() {
    std::string text = out_.str();
    out_.str("");
    return text;
  }

  absl::Time now_ = absl::UnixEpoch();
  std::ostringstream out_;
};

TEST_F(ProgressTest, IsALineEveryFiveSecondsWhereThereIsNoTerminal) {
  Progress progress = Make(/*is_terminal=*/false);
  std::string lines;
  for (int tenth = 0; tenth < 160; ++tenth) {
    progress.Show(tenth / 10);
    lines += Written();
    now_ += absl::Milliseconds(100);
  }
  EXPECT_EQ(lines,
            "5/40 shards (12 %), 35s left\n"
            "10/40 shards (25 %), 30s left\n"
            "15/40 shards (38 %), 25s left\n");
  progress.Finish(40);
  EXPECT_EQ(Written(), "") << "the result itself says that it is done";
}

TEST_F(ProgressTest, IsABarInItsPlaceOnATerminal) {
  Progress progress = Make(/*is_terminal=*/true);
  progress.Show(0);
  EXPECT_EQ(Written(), "") << "too soon";
  now_ += absl::Milliseconds(100);
  progress.Show(10);
  EXPECT_EQ(Written(), "\r[#######.......................] 10/40 shards (25 %)\x1b[K");
  now_ += absl::Milliseconds(99);
  progress.Show(11);
  EXPECT_EQ(Written(), "") << "ten times a second at most";
  now_ += absl::Milliseconds(9901);
  progress.Show(20);
  EXPECT_EQ(Written(), "\r[###############...............] 20/40 shards (50 %), 10s left\x1b[K");
  progress.Finish(40);
  EXPECT_EQ(Written(), "\r[##############################] 40/40 shards (100 %)\x1b[K\n");
}

TEST_F(ProgressTest, OfNothingIsComplete) {
  Progress progress(0, "shards", out_, /*is_terminal=*/true, [this] { return now_; });
  progress.Finish(0);
  EXPECT_EQ(Written(), "\r[##############################] 0/0 shards (100 %)\x1b[K\n");
}

TEST(RunInParallel, DoesEachPieceOnce) {
  std::vector<std::atomic<int>> done(200);
  EXPECT_TRUE(RunInParallel(done.size(), 4, "pieces", [&](size_t piece) {
                ++done[piece];
                return absl::OkStatus();
              }).ok());
  for (const std::atomic<int>& count : done) EXPECT_EQ(count, 1);
  EXPECT_TRUE(RunInParallel(0, 4, "pieces", [](size_t) { return absl::InternalError("none"); }).ok());
}

TEST(RunInParallel, ReturnsTheErrorOfTheLowestPieceAndBeginsNoMore) {
  std::atomic<int> begun = 0;
  absl::Status status = RunInParallel(1000, 1, "pieces", [&](size_t piece) {
    ++begun;
    return piece < 3 ? absl::OkStatus() : absl::DataLossError(std::to_string(piece));
  });
  EXPECT_EQ(status, absl::DataLossError("3"));
  EXPECT_EQ(begun, 4);
}

}  // namespace
}  // namespace evenkeel::cli
