// Rearrangements, against rows that are moved one by one.
#include "reorder/compose.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "tests/reorder/omni_trace.h"

namespace evenkeel::reorder {
namespace {

using Row = std::pair<uint32_t, uint64_t>;  // (rank, row)

std::map<Row, Row> RowByRow(const Rearrangement& rearrangement) {
  std::map<Row, Row> to;
  for (const RowRun& run : rearrangement.runs) {
    for (uint64_t i = 0; i < run.rows; ++i) to[{run.from, run.from_row + i}] = {run.to, run.to_row + i};
  }
  return to;
}

// Cuts every rank's rows into runs and lays them out on random ranks in random order; some are left out.
Rearrangement DrawRearrangement(Random& random, uint32_t ranks, uint64_t rows_per_rank) {
  Rearrangement drawn{.num_ranks = ranks};
  for (uint32_t r = 0; r < ranks; ++r) {
    for (uint64_t row = 0; row < rows_per_rank;) {
      const uint64_t rows = std::min(rows_per_rank - row, random.Below(7));
      if (random.Below(8) > 0)
        drawn.runs.push_back({r, row, static_cast<uint32_t>(random.Below(ranks)), 0, rows});
      row += std::max<uint64_t>(1, rows);
    }
  }
  for (size_t i = drawn.runs.size(); i > 1; --i) std::swap(drawn.runs[i - 1], drawn.runs[random.Below(i)]);
  std::vector<uint64_t> next(ranks, 0);
  for (RowRun& run : drawn.runs) {
    run.to_row = next[run.to] + random.Below(2);
    next[run.to] = run.to_row + run.rows;
  }
  return drawn;
}

TEST(Compose, EqualsApplyingOneAfterTheOther) {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const uint32_t ranks = static_cast<uint32_t>(1 + random.Below(6));
    const Rearrangement first = DrawRearrangement(random, ranks, random.Below(40));
    const Rearrangement second = DrawRearrangement(random, ranks, random.Below(40));
    const auto route = Compose(first, second);
    ASSERT_TRUE(route.ok()) << route.status();
    const std::map<Row, Row> one = RowByRow(first), two = RowByRow(second);
    std::map<Row, Row> expected;
    for (const auto& [from, between] : one) {
      if (auto to = two.find(between); to != two.end()) expected[from] = to->second;
    }
    ASSERT_EQ(RowByRow(*route), expected) << i;
    ASSERT_TRUE(CheckRearrangement(*route).ok());
  }
}

TEST(Compose, InverseBringsEveryRowBack) {
  Random random(2);
  for (int i = 0; i < 2000; ++i) {
    const Rearrangement there = DrawRearrangement(random, static_cast<uint32_t>(1 + random.Below(6)), 30);
    const auto back = Inverse(there);
    ASSERT_TRUE(back.ok()) << back.status();
    const auto round_trip = Compose(there, *back);
    ASSERT_TRUE(round_trip.ok());
    for (const RowRun& run : round_trip->runs) {
      ASSERT_EQ(run.from, run.to);
      ASSERT_EQ(run.from_row, run.to_row);
    }
    ASSERT_EQ(RowByRow(*round_trip).size(), RowByRow(there).size());
    // In canonical form, twice back is there again.
    const auto again = Inverse(*back);
    ASSERT_EQ(RowByRow(*again), RowByRow(there));
    ASSERT_EQ(Inverse(*Inverse(*again))->runs, again->runs);
  }
}

TEST(Compose, JoinsRunsThatFollowEachOther) {
  const Rearrangement first{.num_ranks = 2, .runs = {{0, 0, 1, 0, 4}, {0, 4, 1, 4, 4}}};
  const Rearrangement second{.num_ranks = 2, .runs = {{1, 0, 0, 10, 8}}};
  EXPECT_EQ(Compose(first, second)->runs, (std::vector<RowRun>{{0, 0, 0, 10, 8}}));
}

TEST(Compose, RefusesWhatIsNoRearrangement) {
  const Rearrangement good{.num_ranks = 2, .runs = {{0, 0, 1, 0, 4}}};
  const Rearrangement no_rank{.num_ranks = 2, .runs = {{0, 0, 2, 0, 4}}};
  const Rearrangement twice_from{.num_ranks = 2, .runs = {{0, 0, 1, 0, 4}, {0, 3, 1, 9, 1}}};
  const Rearrangement twice_to{.num_ranks = 2, .runs = {{0, 0, 1, 0, 4}, {1, 0, 1, 3, 1}}};
  const Rearrangement far{.num_ranks = 2, .runs = {{0, ~uint64_t{0}, 1, 0, 4}}};
  const Rearrangement wider{.num_ranks = 3, .runs = {}};
  for (const Rearrangement& bad : {no_rank, twice_from, twice_to, far, wider}) {
    EXPECT_EQ(Compose(good, bad).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Compose(bad, good).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(Inverse(twice_to).ok());
  EXPECT_FALSE(Inverse(twice_from).ok());
}

}  // namespace
}  // namespace evenkeel::reorder
