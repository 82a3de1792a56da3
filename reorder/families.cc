#include "reorder/families.h"

#include <bit>

namespace evenkeel::reorder {
namespace {

constexpr float kNever = 1e30f;  // the load of a child that does not exist

constexpr Float4 kLane[4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};

Int4 Least(Int4 a, Int4 b) { return a < b ? a : b; }

// Families of one level and the ranks below each.
struct Level {
  std::vector<Family> families;
  std::vector<uint32_t> ranks;

  void Open() {
    families.emplace_back();
    ranks.push_back(0);
  }
  void Append(uint32_t child, uint32_t num_ranks) {
    families.back().Append(child, num_ranks);
    ranks.back() += num_ranks;
  }
};

Level Leaves(const PhaseRanks& ranks) {
  Level level;
  for (uint32_t n = 0; n + 1 < ranks.on_node_begin.size(); ++n) {
    const auto here = ranks.OnNode(n);
    const uint64_t count = here.size();
    const uint64_t pieces = (count + Family::kMost - 1) / Family::kMost;
    for (uint64_t piece = 0; piece < pieces; ++piece) {
      const uint64_t begin = count * piece / pieces, end = count * (piece + 1) / pieces;
      if (level.families.empty() || level.ranks.back() + (end - begin) > Family::kMost / 2) level.Open();
      for (uint64_t i = begin; i < end; ++i) level.Append(here[i], 1);
    }
  }
  return level;
}

Level Over(const Level& below) {
  Level level;
  const uint64_t count = below.families.size();
  const uint64_t pieces = (count + Family::kMost - 1) / Family::kMost;
  for (uint64_t piece = 0; piece < pieces; ++piece) {
    level.Open();
    for (uint64_t i = count * piece / pieces; i < count * (piece + 1) / pieces; ++i) {
      level.Append(static_cast<uint32_t>(i), below.ranks[i]);
    }
  }
  return level;
}

}  // namespace

Family::Family() {
  for (auto& phase : load_) {
    for (Float4& four : phase) four = Float4{kNever, kNever, kNever, kNever};
  }
}

void Family::Append(uint32_t child, uint32_t num_ranks) {
  for (auto& phase : load_) phase[size_ / 4][size_ % 4] = 0;
  per_rank_[size_] = 1.0f / static_cast<float>(num_ranks);
  child_[size_++] = child;
}

uint32_t Family::Take(const Shares& weight, const Shares& share) {
  // A float that is not negative orders as the integer of its bits: the last four become the child's number,
  // so that one minimum finds the least and, of near equals, the first.
  Int4 least = {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX};
  for (int32_t four = 0; 4 * four < static_cast<int32_t>(size_); ++four) {
    const Float4 growth =
        weight[0] * load_[0][four] + weight[1] * load_[1][four] + weight[2] * load_[2][four];
    const Int4 number = {4 * four, 4 * four + 1, 4 * four + 2, 4 * four + 3};
    least = Least(least, (std::bit_cast<Int4>(growth) & ~15) | number);
  }
  int32_t best = least[0];
  for (int lane = 1; lane < 4; ++lane) best = least[lane] < best ? least[lane] : best;
  const uint32_t c = static_cast<uint32_t>(best) & 15;
  // Four lanes are written although one changes: the next unit reads four, and cannot read past a narrower
  // store.
  const Float4 lane = kLane[c % 4] * per_rank_[c];
  for (int p = 0; p < kNumPhases; ++p) load_[p][c / 4] += share[p] * lane;
  return child_[c];
}

std::vector<std::vector<Family>> MakeFamilies(const PhaseRanks& ranks) {
  std::vector<std::vector<Family>> levels;
  Level level = Leaves(ranks);
  levels.push_back(level.families);
  while (level.families.size() > 1) {
    level = Over(level);
    levels.push_back(level.families);
  }
  return levels;
}

}  // namespace evenkeel::reorder
