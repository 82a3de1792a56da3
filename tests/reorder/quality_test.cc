// How well the default balances, on drawn traces and on the shared one. Ratios, never times.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "reorder/balance/balance.h"
#include "reorder/planner.h"
#include "tests/reorder/omni_trace.h"
#include "tests/source_dir.h"
#include "tests/usual_phases.h"

namespace evenkeel::reorder {
namespace {

Job MakeJob(uint32_t ranks) {
  Job job;
  job.ranks_per_node = 8;
  for (Phase phase : kUsualPhases) {
    PhaseSpec& spec = job.phases.emplace_back();
    spec.phase = phase;
    for (uint32_t r = 0; r < ranks; ++r) spec.ranks.push_back(r);
  }
  return job;
}

StepSamples MakeStep(const std::vector<SampleLengths>& trace, size_t first, size_t count) {
  StepSamples step;
  for (size_t i = first; i < first + count; ++i) {
    step.refs.push_back({0, 0, i});
    step.lengths.push_back(trace[i]);
  }
  return step;
}

// Largest load over the mean, or over the longest unit where that is more.
double AboveReachable(const Plan& plan, Phase phase) {
  const std::vector<double>& loads = plan.phase(phase)->load_after;
  double sum = 0, largest = 0, longest = 0;
  for (double load : loads) sum += load, largest = std::max(largest, load);
  if (phase == Phase::kLlm) {
    for (const PlannedSample& sample : plan.samples) longest = std::max<double>(longest, sample.llm_length);
  } else {
    for (const PlannedItem& item : plan.items) {
      if (UsualPhaseOf(item.medium) == phase) longest = std::max<double>(longest, item.lengths.cost_length);
    }
  }
  return largest / std::max(sum / static_cast<double>(loads.size()), longest);
}

uint64_t RowsBetweenNodes(const Job& job, const Plan& plan) {
  uint64_t rows = 0;
  for (const PlannedItem& item : plan.items) {
    if (job.NodeOf(item.place.rank) != job.NodeOf(plan.samples[item.sample].place.rank)) {
      rows += item.lengths.output_rows;
    }
  }
  return rows;
}

void ExpectBalanced(uint32_t ranks, const StepSamples& step, bool without_moving) {
  const Job job = MakeJob(ranks);
  const auto plan = MakePlan(job, step, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(PlanCheck(job, step, *plan).ok());
  for (Phase phase : kUsualPhases) EXPECT_LE(AboveReachable(*plan, phase), 1.005) << PhaseName(phase);
  if (without_moving) {
    EXPECT_EQ(RowsBetweenNodes(job, *plan), 0u);
  }
}

TEST(BalanceWithoutMoving, BalancesAllPhasesAtSixtySamplesPerRank) {
  for (uint64_t seed : {101, 102, 103, 104}) {
    ExpectBalanced(128, MakeStep(DrawOmniTrace(seed, 128 * 60), 0, 128 * 60), true);
  }
}

TEST(BalanceWithoutMoving, BalancesAllPhasesOverThreeHundredTwentyNodes) {
  ExpectBalanced(2560, MakeStep(DrawOmniTrace(201, 2560 * 60), 0, 2560 * 60), true);
}

// Tiles of one size: the mean is no whole number of them, and a rank has one more at best.
TEST(BalanceWithoutMoving, EvensOutTilesWithoutMovingOne) {
  constexpr uint32_t kRanks = 256, kTile = 1024;
  for (uint64_t seed : {1, 2, 3}) {
    const StepSamples step = MakeStep(DrawTileTrace(seed, size_t{40} * kRanks), 0, size_t{40} * kRanks);
    const Job job = MakeJob(kRanks);
    const auto plan = MakePlan(job, step, {});
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_TRUE(PlanCheck(job, step, *plan).ok());
    uint64_t tiles = 0;
    for (const PlannedItem& item : plan->items) tiles += item.lengths.cost_length / kTile;
    const std::vector<double>& loads = plan->phase(kVisionPhase)->load_after;
    EXPECT_EQ(*std::max_element(loads.begin(), loads.end()), (tiles + kRanks - 1) / kRanks * kTile);
    EXPECT_EQ(RowsBetweenNodes(job, *plan), 0u);
  }
}

TEST(MinHeaviestRank, IsABoundThatTilesReach) {
  using reorder::Load;
  Random random(5);
  for (int i = 0; i < 2000; ++i) {
    const size_t ranks = 1 + random.Below(3), units = random.Below(7);
    const Load tile = static_cast<Load>(1 + random.Below(9));
    std::vector<Load> cost(units);
    for (Load& c : cost) c = tile * static_cast<Load>(random.Below(6));
    Load best = std::accumulate(cost.begin(), cost.end(), Load{0});
    for (size_t code = 0; code < static_cast<size_t>(std::pow(ranks, units)); ++code) {
      std::vector<Load> load(ranks, 0);
      size_t digits = code;
      for (Load c : cost) load[digits % ranks] += c, digits /= ranks;
      best = std::min(best, *std::max_element(load.begin(), load.end()));
    }
    for (double tolerance : {0.0, 0.002, 0.3}) {
      EXPECT_LE(MinHeaviestRank(cost, ranks, tolerance), best) << i;
    }
  }
  EXPECT_EQ(MinHeaviestRank(std::vector<Load>{5, 5, 5, 5, 5}, 2, 0.002), 15);
  EXPECT_EQ(MinHeaviestRank(std::vector<Load>{5, 5, 5, 5, 5}, 2, 0.2), 13);  // 15 is tolerated
  EXPECT_EQ(MinHeaviestRank(std::vector<Load>{5, 5, 5, 5, 4}, 2, 0.002), 12);
  EXPECT_EQ(MinHeaviestRank(std::vector<Load>{9, 3, 3}, 4, 0.002), 9);
  EXPECT_EQ(MinHeaviestRank(std::vector<Load>{}, 4, 0.002), 0);
}

TEST(BalanceWithoutMoving, ReachesTheLongestUnitAtSixteenSamplesPerRank) {
  for (uint64_t seed : {301, 302, 303, 304, 40207, 40454, 70000}) {
    ExpectBalanced(128, MakeStep(DrawOmniTrace(seed, 128 * 16), 0, 128 * 16), false);
  }
  ExpectBalanced(2560, MakeStep(DrawOmniTrace(305, 2560 * 16), 0, 2560 * 16), false);
}

std::vector<uint32_t> Numbers(const std::string& cell) {
  std::istringstream in(cell);
  std::vector<uint32_t> numbers;
  for (uint32_t number; in >> number;) numbers.push_back(number);
  return numbers;
}

TEST(BalanceWithoutMoving, BalancesTheSharedTrace) {
  const char* shared = std::getenv("EVENKEEL_SHARED");
  const std::filesystem::path folder = shared != nullptr ? shared : SourceDir() + "/../shared";
  std::ifstream in(folder / "traces" / "omni-20k.csv");
  if (!in) GTEST_SKIP() << "no " << (folder / "traces" / "omni-20k.csv") << "; set EVENKEEL_SHARED";
  std::vector<SampleLengths> trace;
  std::string line, vision, audio, llm;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    std::getline(cells, vision, ','), std::getline(cells, audio, ','), std::getline(cells, llm, ',');
    trace.push_back(MakeOmniSample(0, Numbers(vision), Medium::kImage, Numbers(audio)));
    trace.back().llm_length = static_cast<uint32_t>(std::strtoul(llm.c_str(), nullptr, 10));
  }
  ASSERT_EQ(trace.size(), 20000u);
  ExpectBalanced(128, MakeStep(trace, 0, 128 * 60), true);
  ExpectBalanced(128, MakeStep(trace, 128 * 60, 128 * 60), true);
  for (size_t step = 0; step < 9; ++step) ExpectBalanced(128, MakeStep(trace, step * 2048, 2048), false);
}

}  // namespace
}  // namespace evenkeel::reorder
