// Problems through the door that the command line and Python use.
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"
#include "reorder/problem/solve.h"

namespace evenkeel::reorder {
namespace {

constexpr char kProblem[] = R"({"order": {"stages": 2, "algorithm": "$", "timeline": true, "microbatches": [
    {"forward": [4, 4], "backward": [8, 8]}, {"forward": [1, 1], "backward": [2, 2]},
    {"forward": [2, 2], "backward": [4, 4]}]}})";

std::string Problem(const std::string& algorithm) {
  return absl::StrReplaceAll(kProblem, {{"$", algorithm}});
}

TEST(OrderJson, SolvesAProblem) {
  const auto solution = SolveJson(Problem("local_search"));
  ASSERT_TRUE(solution.ok()) << solution.status();
  // The smallest first, then the largest: the best of six.
  EXPECT_NE(solution->find(R"("iteration_time":29,)"), std::string::npos) << *solution;
  EXPECT_NE(solution->find(R"("given_time":)"), std::string::npos);
  EXPECT_NE(solution->find(R"("microbatch":)"), std::string::npos) << "no timeline";
}

TEST(OrderJson, NamesTheFieldThatIsWrong) {
  const auto message = [](const std::string& json) {
    return std::string(SolveJson(json).status().message());
  };
  EXPECT_NE(message(Problem("best")).find("problem: order: unknown algorithm 'best'"), std::string::npos);
  EXPECT_NE(message(R"({"order": {"stages": 2, "schedule": "zigzag"}})").find("order.schedule: 'zigzag'"),
            std::string::npos);
  EXPECT_NE(message(R"({"order": {"stages": 2, "microbatches": [{"forward": [1], "backward": [1, 1]}]}})")
                .find("order.microbatches[0]: 1 forward and 2 backward times for 2 chunks"),
            std::string::npos);
  EXPECT_NE(message(R"({"order": {}})").find("at least one stage"), std::string::npos);
}

TEST(ProblemJson, NamesThePlaceAndTheNearestField) {
  const struct {
    const char *json, *says;
  } kFaults[] = {
      {R"({"blance": {}})",
       "problem: unknown field 'blance'; nearest is 'balance'; expected one of balance, compose"},
      {R"({"balance": {"phases": [{}, {"nme": "llm"}]}})",
       "problem: balance.phases[1]: unknown field 'nme'; nearest is 'name'"},
      {R"({"balance": {"samples": [{"llm": -1}]}})",
       "problem: balance.samples[0].llm: -1 is not a whole number from 0 to 2^32 - 1"},
      {R"({"balance": {"samples": [{"llm": 1.5}]}})", "balance.samples[0].llm: 1.5 is not a whole number"},
      {R"({"balance": {"samples": 3}})", "problem: balance.samples: 3 is not a list"},
      {R"({"balance": {"phases": [{"tolerance": "x"}]}})",
       "balance.phases[0].tolerance: 'x' is not a number"},
      {R"({"balance": {"phases": [{"node_wise": 1}]}})",
       "balance.phases[0].node_wise: 1 is neither true nor false"},
      {R"({"pack": {"phases": [{"name": 3}]}})", "pack.phases[0].name: 3 is not a string"},
      {R"({"pack": []})", "problem: pack: a list is not an object with fields"},
      {R"({"pack": {}, "balance": {}})", "problem: has both 'balance' and 'pack'; give one kind"},
      {R"({"context_parallel": {"tokens": [4294967296]}})",
       "problem: context_parallel.tokens[0]: 4294967296 is not a whole number from 0 to 2^32 - 1"},
      {R"({"context_parallel": {"ranks": 2, "tokens": [10], "cost": {"ring": -1}}})",
       "context_parallel: cost.ring is -1; expected a number from 0 to 1e30"},
      {R"({"order": {"stages": 1, "transfer": -2}})",
       "order: transfer is -2; expected a number from 0 to 1e290"},
      {R"({"order": {"stages": 2, "microbatches": [{"forward": [1, 1], "backward": [1, -3]}]}})",
       "order: microbatch 0: backward[1] is -3; expected a number from 0 to 1e290"},
      {R"({"order": {"stages": 1, "microbatches": [{"forward": [1e308], "backward": [1]}]}})",
       "order: microbatch 0: forward[0] is 1e+308; expected a number from 0 to 1e290"},
      {R"({"balance": {"phases": [{"name": "llm", "num_ranks": 2, "batching": "padded", "equal_counts": true}]}})",
       "phase llm: equal_counts cannot be kept where batches are padded; leave it out"},
      {R"({"balance": {"phases": [{"name": "llm", "num_ranks": 2}],
                       "samples": [{"llm": 5}, {"llm": 5, "vision": [{"cost_length": 3}]}]}})",
       "balance.samples[1].vision: the problem has no phase vision; add it to balance.phases"},
      {R"({"balance": {"phases": [{"name": "llm", "num_ranks": 2}],
                       "microbatch": {"capacity_tokens": 8, "align": 4}, "samples": [{"llm": 9}]}})",
       "balance.samples[0].llm: 12 tokens when aligned to 4, more than balance.microbatch.capacity_tokens, "
       "8"},
      {R"({"context_parallel": {"ranks": 4, "ranks_per_node": 2, "tokens": [10],
                                "cost": {"ring": 2, "ring_between_nodes": 1}}})",
       "context_parallel: cost.ring_between_nodes is 1, less than cost.ring, 2"},
      {R"([])", "problem: a list is not an object"},
      {R"({"pack": )", "problem: not JSON: "},
      {"", "problem: not JSON: "},
  };
  for (const auto& fault : kFaults) {
    const absl::Status status = SolveJson(fault.json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fault.json;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status;
    EXPECT_NE(status.message().find(fault.says), std::string::npos) << fault.json << ": " << status;
  }
}

TEST(ProblemJson, NamesThePlaceInTheProblemThatArraysComeWith) {
  const absl::Status status = ParseBalanceInput(R"({"phases": [{"num_rank": 2}]})").status();
  EXPECT_NE(
      status.message().find("problem: balance.phases[0]: unknown field 'num_rank'; nearest is 'num_ranks'"),
      std::string::npos)
      << status;
}

}  // namespace
}  // namespace evenkeel::reorder
