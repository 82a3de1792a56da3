// Problems through the door that the command line and Python use.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "reorder/problem/solve.h"
#include "tests/reorder/random_problem.h"

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
                       "samples": [{"llm": 5, "items": [{"phase": "tower", "cost_length": 3}]}]}})",
       "balance.samples[0].items[0].phase: the problem has no phase tower; add it to balance.phases"},
      {R"({"balance": {"phases": [{"name": "LLM", "num_ranks": 2}]}})",
       "balance.phases[0].name: 'LLM' is not the name of a phase"},
      {R"({"pack": {"phases": [{"name": ""}]}})", "pack.phases[0].name: '' is not the name of a phase"},
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

// Samples with items of the encoders, `lists` of them as lists of their own and the others under `items`.
std::string BalanceOf(const std::vector<std::string>& encoders, size_t lists, const Below& below) {
  std::string phases = R"({"name": "llm", "num_ranks": 6})";
  for (const std::string& encoder : encoders) {
    absl::StrAppend(&phases, R"(, {"name": ")", encoder, R"(", "num_ranks": 6, "runs": ")",
                    below(2) == 0 ? "once_per_step" : "once_per_microbatch", R"(", "algorithm": ")",
                    below(2) == 0 ? "balance_without_moving" : "karmarkar_karp", "\"}");
  }
  std::vector<std::string> samples;
  for (int s = 0; s < 40; ++s) {
    std::string sample = absl::StrCat(R"({"llm": )", 50 + below(100)), items;
    for (size_t e = 0; e < encoders.size(); ++e) {
      std::string list;
      for (uint64_t i = below(3); i > 0; --i) {
        const std::string lengths =
            absl::StrCat(R"("cost_length": )", 1 + below(300), R"(, "output_rows": )", 1 + below(20), "}");
        if (e < lists) {
          absl::StrAppend(&list, list.empty() ? "{" : ", {", lengths);
        } else {
          absl::StrAppend(&items, items.empty() ? "" : ", ", R"({"phase": ")", encoders[e], "\", ", lengths);
        }
      }
      if (e < lists) absl::StrAppend(&sample, ", \"", encoders[e], "\": [", list, "]");
    }
    samples.push_back(absl::StrCat(sample, ", \"items\": [", items, "]}"));
  }
  return absl::StrCat(
      R"({"balance": {"ranks_per_node": 3, "microbatch": {"capacity_tokens": 400}, "phases": [)", phases,
      R"(], "samples": [)", absl::StrJoin(samples, ", "), "]}}");
}

// What is timed differs, and nothing else.
std::string WithoutTime(const std::string& solution) { return solution.substr(solution.find(',')); }

TEST(BalanceJson, ReadsItemsOfVisionAndAudioInEitherForm) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<std::string> encoders = {"vision", "audio"};
    const auto lists = SolveJson(BalanceOf(encoders, 2, BelowFrom(seed)));
    const auto items = SolveJson(BalanceOf(encoders, 0, BelowFrom(seed)));
    ASSERT_TRUE(lists.ok()) << lists.status();
    ASSERT_TRUE(items.ok()) << items.status();
    ASSERT_EQ(lists->rfind("{\"wall_ms\":", 0), 0u) << *lists;
    EXPECT_EQ(WithoutTime(*lists), WithoutTime(*items)) << seed;
  }
}

// PlanCheck runs within; the ranks of a phase's items account for its load.
TEST(BalanceJson, PlansFiveEncodersInAnyOrder) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Below below = BelowFrom(seed);
    std::vector<std::string> encoders = {"vision", "audio", "depth", "tower", "points"};
    for (size_t e = encoders.size(); e > 1; --e) std::swap(encoders[e - 1], encoders[below(e)]);
    const std::string problem = BalanceOf(encoders, 0, below);
    const auto solution = SolveJson(problem);
    ASSERT_TRUE(solution.ok()) << solution.status() << problem;
    size_t from = 0;
    for (const std::string& encoder : encoders) {  // in the problem's order
      from = solution->find(absl::StrCat("{\"name\":\"", encoder, "\""), from);
      ASSERT_NE(from, std::string::npos) << encoder << *solution;
    }
  }
}

TEST(PackJson, PacksPhasesOfAnyName) {
  const auto solution = SolveJson(R"({"pack": {"devices": 2, "phases": [
      {"name": "llm", "capacity": 10, "length": [4, 6, 5, 5]},
      {"name": "vision", "capacity": 3, "length": [1, 1, 1, 1]}, {"name": "depth", "capacity": 9, "length": [1, 8, 8, 1]},
      {"name": "audio", "capacity": 3, "length": [1, 1, 1, 1]}, {"name": "tower", "capacity": 2, "length": [1, 1, 1, 1]},
      {"name": "points", "capacity": 4, "length": [2, 2, 2, 2]}]}})");
  ASSERT_TRUE(solution.ok()) << solution.status();
  EXPECT_NE(solution->find(R"("num_bins":2,)"), std::string::npos) << *solution;
  // 4 + 6 and 5 + 5 tokens are the only two bins, and 1 + 8 of depth in each.
  for (const char* name : {"llm", "vision", "depth", "audio", "tower", "points"}) {
    EXPECT_NE(solution->find(absl::StrCat("{\"name\":\"", name, "\"")), std::string::npos) << *solution;
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
