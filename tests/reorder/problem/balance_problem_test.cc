// A step as a problem: its figures, against counting by hand.
#include "reorder/problem/balance_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "reorder/planner.h"
#include "tests/reorder/omni_trace.h"
#include "tests/usual_phases.h"

namespace evenkeel::reorder {
namespace {

BalanceInput MakeInput(std::vector<SampleLengths> lengths, uint32_t ranks, const std::string& algorithm) {
  BalanceInput input{.ranks_per_node = 8};
  for (Phase phase : kUsualPhases) {
    BalancePhaseInput& in = input.phases.emplace_back();
    in.spec.phase = phase;
    in.spec.algorithm = algorithm;
    for (uint32_t r = 0; r < ranks; ++r) in.spec.ranks.push_back(r);
  }
  input.step.lengths = std::move(lengths);
  input.step.refs.resize(input.step.lengths.size());
  return input;
}

// Where greedy_packed puts the llm when it sees nothing else.
std::vector<uint32_t> GreedyPlacement(const BalanceInput& input) {
  BalanceInput llm = input;
  llm.phases.resize(1);
  llm.phases[0].spec.algorithm = "greedy_packed";
  for (SampleLengths& sample : llm.step.lengths) sample.items.clear();
  std::vector<uint32_t> rank;
  const auto solved = SolveBalance(llm);
  EXPECT_TRUE(solved.ok()) << solved.status();
  for (const PlannedSample& sample : solved->plan.samples) rank.push_back(sample.place.rank);
  return rank;
}

TEST(SolveBalance, CountsRowsBetweenNodesByThePlacesOfItems) {
  for (const char* algorithm : {"greedy_packed", "node_wise", "karmarkar_karp", "balance_without_moving"}) {
    const BalanceInput input = MakeInput(DrawOmniTrace(5, 32 * 20), 32, algorithm);
    const auto outcome = SolveBalance(input);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    uint64_t rows = 0, between = 0;
    for (const PlannedItem& item : outcome->plan.items) {
      const uint32_t home = outcome->plan.samples[item.sample].place.rank;
      rows += item.lengths.output_rows;
      if (home / 8 != item.place.rank / 8) between += item.lengths.output_rows;
    }
    EXPECT_EQ(outcome->inter_node_rows, between) << algorithm;
    EXPECT_EQ(outcome->phases[1].rows + outcome->phases[2].rows, rows);
    for (const BalancedPhase& phase : outcome->phases) {
      EXPECT_LE(phase.max_rank_volume_bound, phase.max_rank_volume) << algorithm;
      EXPECT_LE(phase.inter_node_rows_bound, phase.rows);
      EXPECT_GE(phase.max_over_mean, phase.reachable * (1 - 1e-12));
    }
  }
}

TEST(SolveBalance, RunsOfRoutesDeliverEveryRowOnce) {
  const BalanceInput input = MakeInput(DrawOmniTrace(6, 16 * 10), 16, "greedy_packed");
  const auto outcome = SolveBalance(input);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  ASSERT_EQ(outcome->plan.routes.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    std::vector<RouteRun> runs = RunsOf(outcome->plan, outcome->plan.routes[i]);
    uint64_t rows = 0, moved = 0;
    for (const RouteRun& run : runs) {
      rows += run.rows;
      if (run.from != run.to) moved += run.rows;
    }
    EXPECT_EQ(rows, outcome->phases[i + 1].rows);
    EXPECT_EQ(moved, outcome->phases[i + 1].rows_to_other_rank);
    // Received rows follow each other without gaps.
    std::sort(runs.begin(), runs.end(), [](const RouteRun& a, const RouteRun& b) {
      return std::pair(a.to, a.to_row) < std::pair(b.to, b.to_row);
    });
    for (size_t r = 0; r < runs.size(); ++r) {
      const bool first = r == 0 || runs[r - 1].to != runs[r].to;
      EXPECT_EQ(runs[r].to_row, first ? 0 : runs[r - 1].to_row + runs[r - 1].rows);
    }
  }
}

TEST(SolveBalance, KeepsAGivenPlacementAndMovesHardlyMoreThanMustLeave) {
  for (uint32_t per_rank : {30u, 60u}) {
    for (uint64_t seed : {7, 8, 9}) {
      BalanceInput input = MakeInput(DrawOmniTrace(seed, 128 * per_rank), 128, "balance_without_moving");
      input.llm_rank = GreedyPlacement(input);
      const auto outcome = SolveBalance(input);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      for (size_t s = 0; s < input.llm_rank.size(); ++s) {
        ASSERT_EQ(outcome->plan.samples[s].place.rank, input.llm_rank[s]);
      }
      uint64_t bound = 0;
      for (const BalancedPhase& phase : outcome->phases) {
        EXPECT_LE(phase.max_over_mean, 1.005) << PhaseName(phase.phase) << " " << per_rank << " " << seed;
        EXPECT_LE(phase.inter_node_rows_bound, phase.inter_node_rows);
        bound += phase.inter_node_rows_bound;
      }
      EXPECT_LE(outcome->inter_node_rows, 1.25 * bound) << per_rank << " " << seed;
    }
  }
}

TEST(SolveBalance, NamesUnitsThatAreTooLong) {
  std::vector<SampleLengths> lengths;
  for (int i = 0; i < 40; ++i) lengths.push_back(MakeOmniSample(100, {200}, Medium::kImage, {}));
  lengths[17].items[0].lengths.cost_length = 100000;
  const auto outcome = SolveBalance(MakeInput(lengths, 8, "balance_without_moving"));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  const BalancedPhase& vision = outcome->phases[1];
  ASSERT_EQ(vision.too_long.size(), 1u);
  EXPECT_EQ(vision.too_long[0].sample, 17u);
  EXPECT_EQ(vision.too_long[0].item, 17u);
  EXPECT_EQ(vision.too_long[0].length, 100000u);
  EXPECT_DOUBLE_EQ(vision.max_over_mean, vision.reachable);
}

TEST(SolveBalance, TakesNodesAsTheyAreGiven) {
  BalanceInput input = MakeInput(DrawOmniTrace(10, 80), 4, "greedy_packed");
  for (BalancePhaseInput& phase : input.phases) {
    phase.spec.ranks = {40, 7, 9, 3};
    phase.nodes = {5, 2, 5, 2};
  }
  const auto outcome = SolveBalance(input);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  uint64_t between = 0;
  for (const PlannedItem& item : outcome->plan.items) {
    const uint32_t home = outcome->plan.samples[item.sample].place.rank;
    if (home % 2 != item.place.rank % 2) between += item.lengths.output_rows;
  }
  EXPECT_EQ(outcome->inter_node_rows, between);
  input.phases[1].nodes = {5, 2, 2, 5};
  EXPECT_EQ(SolveBalance(input).status().code(), absl::StatusCode::kInvalidArgument);
  input.phases[1].nodes.clear();
  EXPECT_EQ(SolveBalance(input).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SolveBalance, KeepsACapacityThatTheAlgorithmAloneWouldNot) {
  const std::vector<SampleLengths> trace = DrawOmniTrace(12, 480);
  BalanceInput input = MakeInput(trace, 8, "none");
  const auto free = SolveBalance(input);
  ASSERT_TRUE(free.ok());
  const std::vector<double>& load = free->phases[0].load;
  const double sum = std::accumulate(load.begin(), load.end(), 0.0);
  input.phases[0].spec.capacity = static_cast<uint64_t>(1.01 * sum / 8);
  ASSERT_GT(*std::max_element(load.begin(), load.end()), static_cast<double>(input.phases[0].spec.capacity));
  const auto kept = SolveBalance(input);
  ASSERT_TRUE(kept.ok()) << kept.status();
  for (double l : kept->phases[0].load) EXPECT_LE(l, static_cast<double>(input.phases[0].spec.capacity));
  input.phases[0].spec.capacity = static_cast<uint64_t>(0.99 * sum / 8);
  EXPECT_NE(SolveBalance(input).status().message().find("no placement holds less than"), std::string::npos);
}

TEST(SolveBalance, ACapacityCloseToTheMeanMovesNoMoreThanItAsksFor) {
  BalanceInput input = MakeInput(DrawOmniTrace(17, 64 * 60), 64, "balance_without_moving");
  const auto free = SolveBalance(input);
  ASSERT_TRUE(free.ok()) << free.status();
  const std::vector<double>& load = free->phases[1].load;
  const double sum = std::accumulate(load.begin(), load.end(), 0.0);
  input.phases[1].spec.capacity = static_cast<uint64_t>(1.0007 * sum / 64);
  ASSERT_GT(*std::max_element(load.begin(), load.end()), static_cast<double>(input.phases[1].spec.capacity));
  const auto kept = SolveBalance(input);
  ASSERT_TRUE(kept.ok()) << kept.status();
  for (double l : kept->phases[1].load) EXPECT_LE(l, static_cast<double>(input.phases[1].spec.capacity));
  EXPECT_LT(kept->phases[1].rows_to_other_rank, kept->phases[1].rows / 50);
}

TEST(SolveBalance, KeepsTokensBesideAQuadraticCost) {
  // A few long documents among chats: a placement that is even in cost has half as many tokens again on some ranks.
  Random random(1001);
  std::vector<SampleLengths> samples(64 * 60);
  for (SampleLengths& sample : samples) {
    sample.llm_length = random.Below(50) == 0 ? 32768 + static_cast<uint32_t>(random.Below(32769))
                                              : random.Length(5.7, 0.8, 1, 4096);
  }
  BalanceInput input = MakeInput(std::move(samples), 64, "balance_without_moving");
  input.phases.resize(1);
  const auto by_length = SolveBalance(input);
  ASSERT_TRUE(by_length.ok()) << by_length.status();
  const std::vector<double> tokens = by_length->phases[0].load;
  const double mean = std::accumulate(tokens.begin(), tokens.end(), 0.0) / 64;
  input.phases[0].spec.cost = {.linear = 1, .quadratic = 1.0 / 24576};
  EXPECT_EQ(SolveBalance(input)->methods.at(Phase::kLlm), std::set<std::string>{"balance_without_moving"});
  const double free = SolveBalance(input)->phases[0].max_over_mean;
  for (double room : {1.01, 1.1, 1.5}) {
    input.phases[0].spec.capacity = static_cast<uint64_t>(room * mean);
    const auto kept = SolveBalance(input);
    ASSERT_TRUE(kept.ok()) << room << ": " << kept.status();
    if (room > 1.05) {
      EXPECT_LE(kept->phases[0].max_over_mean, free * 1.005) << room;
    }
  }
}

// Ranks that meet at the end of a step alone.
BalanceInput MakeSums(std::vector<SampleLengths> samples, uint32_t ranks) {
  BalanceInput input = MakeInput(std::move(samples), ranks, "none");
  input.phases[0].spec.algorithm = "balance_without_moving";
  for (size_t p = 0; p < 3; ++p) input.phases[p].spec.cost = {.linear = p == 0 ? 1 : 0.12};
  input.phases_add_up = true;
  return input;
}

TEST(SolveBalance, SumsOfPhasesAreAsEvenAsThoseOfTheSimpleMethod) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    BalanceInput input = MakeSums(DrawOmniTrace(seed, 64 * 16), 64);
    const auto outcome = SolveBalance(input);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    std::vector<double> sum(input.step.lengths.size(), 0), least(64, 0);
    for (size_t s = 0; s < sum.size(); ++s) {
      sum[s] = input.step.lengths[s].llm_length;
      for (const SampleItem& item : input.step.lengths[s].items) sum[s] += 0.12 * item.lengths.cost_length;
    }
    std::sort(sum.rbegin(), sum.rend());
    for (double cost : sum) *std::min_element(least.begin(), least.end()) += cost;
    const double mean = std::accumulate(sum.begin(), sum.end(), 0.0) / 64;
    const double simple = *std::max_element(least.begin(), least.end()) / mean;
    EXPECT_LE(outcome->max_over_mean_of_step, std::max(simple * (1 + 1e-9), 1.002)) << seed;
    input.phases_add_up = false;
    EXPECT_EQ(SolveBalance(input)->max_over_mean_of_step, 0);
  }
}

TEST(SolveBalance, SumsOfPhasesNeedThatNothingMoves) {
  BalanceInput input = MakeSums(DrawOmniTrace(3, 80), 8);
  input.phases[1].spec.algorithm = "greedy_packed";
  const absl::Status status = SolveBalance(input).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("ranks_meet"), std::string::npos) << status;
}

TEST(SolveBalance, RefusesWhatCannotBeKept) {
  BalanceInput input = MakeInput(DrawOmniTrace(11, 80), 8, "greedy_quadratic");
  input.phases[1].spec.equal_counts = true;
  EXPECT_EQ(SolveBalance(input).status().code(), absl::StatusCode::kInvalidArgument);
  input.phases[1].spec.equal_counts = false;
  input.phases[0].spec.capacity = 10;
  EXPECT_EQ(SolveBalance(input).status().code(), absl::StatusCode::kResourceExhausted);
  input.phases[0].spec.capacity = 0;
  input.llm_rank.assign(80, 8);
  EXPECT_EQ(SolveBalance(input).status().code(), absl::StatusCode::kInvalidArgument);
  input.llm_rank.assign(79, 0);
  EXPECT_EQ(SolveBalance(input).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace evenkeel::reorder
