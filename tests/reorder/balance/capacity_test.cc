// What a rank can hold, beside costs that grow with the square of the lengths.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "reorder/balance/balance.h"
#include "reorder/balance/balance_without_moving.h"
#include "tests/reorder/balance/make_ranks.h"
#include "tests/reorder/omni_trace.h"

namespace evenkeel::reorder {
namespace {

constexpr int kKinds = 5;

uint32_t DrawLength(int kind, Random& random) {
  switch (kind) {
    case 0:  // long documents among chats
      return random.Below(50) == 0 ? 32768 + static_cast<uint32_t>(random.Below(32769))
                                   : random.Length(5.7, 0.8, 1, 4096);
    case 1:
      return random.Length(7.5, 1.5, 1, 131072);
    case 2:
      return random.Below(20) == 0 ? 16384 : 512;
    case 3:
      return 256 * (1 + static_cast<uint32_t>(random.Below(12)));
    default:
      return 1 + static_cast<uint32_t>(random.Below(8192));
  }
}

// Lengths, their costs n + n^2 / 24,576, and where they are.
struct Drawn {
  PhaseRanks ranks;
  Neighbours neighbours;
  std::vector<uint32_t> length, home, rows;
  std::vector<Load> cost, size;
  BalanceProblem problem;
  std::string what;

  Drawn(uint64_t seed, uint32_t most_ranks, uint32_t most_per_rank) {
    Random random(seed);
    const int kind = static_cast<int>(seed % kKinds);
    ranks = MakeRanks(2 + static_cast<uint32_t>(random.Below(most_ranks - 1)), 8);
    neighbours = MakeNeighbours(ranks);
    std::vector<double> costs;
    for (uint64_t i = ranks.size() * (2 + random.Below(most_per_rank - 1)); i > 0; --i) {
      const double n = length.emplace_back(DrawLength(kind, random));
      costs.push_back(n + n * n / 24576);
      rows.push_back(length.back() / 4 + 1);
      home.push_back(static_cast<uint32_t>(random.Below(ranks.size())));
    }
    const Scale scale(std::accumulate(costs.begin(), costs.end(), 0.0));
    for (double value : costs) cost.push_back(scale(value));
    size.assign(length.begin(), length.end());
    problem = {.ranks = &ranks, .cost = cost, .length = length, .rows = rows};
    if (random.Below(3) == 0) {
      problem.neighbours = &neighbours;
      problem.home = home;
      problem.homes_are_given = true;
    }
    what = "seed " + std::to_string(seed) + ", kind " + std::to_string(kind) + ", " +
           std::to_string(ranks.size()) + " ranks, " + std::to_string(length.size()) + " units";
  }
  Drawn(const Drawn&) = delete;

  Load Fullest(std::span<const uint32_t> rank) const {
    BalanceProblem by_size = problem;
    by_size.cost = size;
    return HeaviestRank(by_size, rank);
  }
  // The fullest rank when the longest comes first, each to the rank with the least.
  Load LongestFirst() const {
    BalanceProblem by_size = problem;
    by_size.cost = size;
    return Fullest(GreedyPacked(by_size));
  }
  double MeanSize() const {
    return static_cast<double>(std::accumulate(size.begin(), size.end(), Load{0})) / ranks.size();
  }
};

TEST(KeepCapacity, KeepsWhateverLongestFirstByLengthKeeps) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    Drawn drawn(seed, 24, 40);
    const double room[] = {1, 1.01, 1.05, 1.2, 1.5};
    const Load capacity = std::max(
        drawn.LongestFirst(), static_cast<Load>(drawn.MeanSize() * room[seed / kKinds % std::size(room)]));
    drawn.problem.capacity = static_cast<uint64_t>(capacity);
    drawn.problem.equal_counts = false;
    const std::vector<uint32_t> even = BalanceWithoutMoving(drawn.problem);
    const std::vector<uint32_t> kept = KeepCapacity(drawn.problem, even);
    ASSERT_LE(drawn.Fullest(kept), capacity) << drawn.what;
    if (drawn.Fullest(even) <= capacity) {
      ASSERT_EQ(kept, even) << drawn.what;
    }
    changed += kept != even;
  }
  EXPECT_GE(changed, 300);
}

// Random exchanges and moves that keep the capacity, accepted as by simulated annealing; the lightest heaviest rank seen.
Load Search(const Drawn& drawn, std::vector<uint32_t> rank, Load capacity, int steps, uint64_t seed) {
  Random random(seed);
  std::vector<Load> load(drawn.ranks.size(), 0), held(drawn.ranks.size(), 0);
  for (size_t i = 0; i < rank.size(); ++i) load[rank[i]] += drawn.cost[i], held[rank[i]] += drawn.size[i];
  const double mean = static_cast<double>(std::accumulate(load.begin(), load.end(), Load{0})) /
                      static_cast<double>(load.size());
  Load best = *std::max_element(load.begin(), load.end());
  for (int step = 0; step < steps; ++step) {
    const double heat = 0.05 * mean * (1 - static_cast<double>(step) / steps) + 1;
    const size_t i = random.Below(rank.size());
    const uint32_t from = rank[i], to = static_cast<uint32_t>(random.Below(load.size()));
    const size_t k = random.Below(rank.size());
    const bool exchange = random.Below(3) > 0 && rank[k] == to;
    if (from == to) continue;
    const Load cost = drawn.cost[i] - (exchange ? drawn.cost[k] : 0);
    const Load size = drawn.size[i] - (exchange ? drawn.size[k] : 0);
    if (held[to] + size > capacity || held[from] - size > capacity) continue;
    const auto before = static_cast<double>(std::max(load[from], load[to]));
    const auto after = static_cast<double>(std::max(load[from] - cost, load[to] + cost));
    if (after > before &&
        std::exp((before - after) / heat) * 1e6 < static_cast<double>(random.Below(1000000))) {
      continue;
    }
    load[from] -= cost, load[to] += cost;
    held[from] -= size, held[to] += size;
    rank[i] = to;
    if (exchange) rank[k] = from;
    best = std::min(best, *std::max_element(load.begin(), load.end()));
  }
  return best;
}

TEST(KeepCapacity, IsAsEvenAsALongSearchFinds) {
  int problems = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    Drawn drawn(seed, 6, 25);
    const Load capacity = std::max(drawn.LongestFirst(), static_cast<Load>(drawn.MeanSize() * 1.03));
    drawn.problem.capacity = static_cast<uint64_t>(capacity);
    const std::vector<uint32_t> even = BalanceWithoutMoving(drawn.problem);
    const std::vector<uint32_t> kept = KeepCapacity(drawn.problem, even);
    if (kept == even) continue;
    ++problems;
    const auto ours = static_cast<double>(HeaviestRank(drawn.problem, kept));
    const auto found = static_cast<double>(Search(drawn, kept, capacity, 60000, seed));
    EXPECT_LE(ours, 1.02 * found) << drawn.what;
  }
  EXPECT_GE(problems, 25);
}

TEST(KeepCapacity, KeepsCountsEqualWhereAsked) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Drawn drawn(seed, 8, 20);
    drawn.problem.neighbours = nullptr;
    drawn.problem.equal_counts = true;
    drawn.problem.capacity = static_cast<uint64_t>(drawn.MeanSize() * 1.1);
    const std::vector<uint32_t> kept = KeepCapacity(drawn.problem, BalanceWithoutMoving(drawn.problem));
    std::vector<size_t> count(drawn.ranks.size(), 0);
    for (uint32_t r : kept) ++count[r];
    const auto [fewest, most] = std::minmax_element(count.begin(), count.end());
    ASSERT_LE(*most - *fewest, 1u) << drawn.what;
  }
}

}  // namespace
}  // namespace evenkeel::reorder
