// Solutions small enough to check by hand, one for each kind of problem: what the digests of
// golden_solutions_test.cc and planner_test.cc hold for large ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "reorder/problem/solve.h"

namespace evenkeel::reorder {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Solved(const std::string& problem) {
  const absl::StatusOr<std::string> solution = SolveJson(problem);
  return solution.ok() ? *solution : std::string(solution.status().message());
}

// 8 goes to rank 0, 5 to rank 1, 4 to rank 1 (9 tokens), 3 to rank 0 (11 tokens).
TEST(ReadableSolutions, GreedyPackedTakesTheHeaviestFirst) {
  EXPECT_THAT(Solved(R"({"balance": {
    "phases": [{"name": "llm", "num_ranks": 2, "algorithm": "greedy_packed"}],
    "samples": [{"llm": 8}, {"llm": 5}, {"llm": 4}, {"llm": 3}]}})"),
              AllOf(HasSubstr(R"("llm_rank":[0,1,1,0])"), HasSubstr(R"("load":[11,9])")));
}

// Each rank gets a sample with an image and one without, so both phases are even and no row leaves its rank.
TEST(ReadableSolutions, PlacesSamplesSoThatItemsNeedNotMove) {
  EXPECT_THAT(Solved(R"({"balance": {
    "phases": [{"name": "llm", "num_ranks": 2}, {"name": "vision", "num_ranks": 2}],
    "samples": [{"llm": 100, "vision": [{"cost_length": 64, "output_rows": 16}]},
                {"llm": 100, "vision": [{"cost_length": 64, "output_rows": 16}]},
                {"llm": 40}, {"llm": 40}]}})"),
              AllOf(HasSubstr(R"("llm_rank":[0,1,0,1])"), HasSubstr(R"("load":[140,140])"),
                    HasSubstr(R"("load":[64,64])"), HasSubstr(R"("rows":"32","rows_to_other_rank":"0")")));
}

// Both images belong to the sample on rank 0. Rank 1 encodes the second one, and its 16 rows travel back to
// rank 0, after the 16 rows of the first.
TEST(ReadableSolutions, MovesTheExcessAndRoutesItsRowsBack) {
  EXPECT_THAT(Solved(R"({"balance": {
    "phases": [{"name": "llm", "num_ranks": 2}, {"name": "vision", "num_ranks": 2}],
    "samples": [{"llm": 100, "vision": [{"cost_length": 64, "output_rows": 16},
                                        {"cost_length": 64, "output_rows": 16}]},
                {"llm": 100}]}})"),
              AllOf(HasSubstr(R"("name":"vision","rank":[0,1],"load":[64,64])"),
                    HasSubstr(R"("from":[0,1],"to":[0,0],"from_row":["0","0"],"to_row":["0","16"],)"
                              R"("rows":["16","16"])")));
}

// Two bins of 10 without a gap: 7 + 3 and 5 + 3 + 2.
TEST(ReadableSolutions, PacksFullBinsOfEqualLoad) {
  EXPECT_THAT(Solved(R"({"pack": {"devices": 2, "phases": [
    {"name": "llm", "capacity": 10, "length": [7, 5, 3, 3, 2]}]}})"),
              AllOf(HasSubstr(R"("num_bins":2,"bin":[0,1,1,0,1])"), HasSubstr(R"("fill":1,)"),
                    HasSubstr(R"("bins_bound":"2")")));
}

// On two stages the smallest microbatch (1) goes first and the next smallest (3) last; of the others,
// DistTrain takes 2 before 0. In the given order the step takes 46.
TEST(ReadableSolutions, DistTrainStartsWithTheSmallestMicrobatch) {
  EXPECT_THAT(
      Solved(R"({"order": {"stages": 2, "schedule": "1f1b", "algorithm": "disttrain", "microbatches": [
    {"forward": [4, 4], "backward": [8, 8]}, {"forward": [1, 1], "backward": [2, 2]},
    {"forward": [3, 3], "backward": [6, 6]}, {"forward": [2, 2], "backward": [4, 4]}]}})"),
      AllOf(HasSubstr(R"("order":[1,2,0,3],"iteration_time":37,)"), HasSubstr(R"("given_time":46)")));
}

// 32 tokens need two ranks of 16. The ring costs 0.1 a token for half of the keys and values: 0.1 * 32 / 2.
// The other sequences run on the other ranks at the same time.
TEST(ReadableSolutions, GivesALongSequenceAsManyRanksAsItNeeds) {
  EXPECT_THAT(Solved(R"({"context_parallel": {"ranks": 4, "memory_per_rank": 16, "memory_per_token": 1,
    "cost": {"linear": 1, "ring": 0.1}, "tokens": [32, 16, 16]}})"),
              HasSubstr(R"({"groups":[{"degree":2,"sequences":[0],"time":17.6},)"
                        R"({"degree":1,"sequences":[1],"time":16},{"degree":1,"sequences":[2],"time":16}],)"
                        R"("time":17.6})"));
}

}  // namespace
}  // namespace evenkeel::reorder
