#include "reorder/families.h"

#include <algorithm>

namespace evenkeel::reorder {
namespace {

constexpr float kNever = 1e30f;  // the load of a child that does not exist

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

alignas(64) constexpr int32_t kNumbers[Family::kMost] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                         8, 9, 10, 11, 12, 13, 14, 15};

// The child that the unit goes to; its share is added to the child's load.
template <int kLanes>
EVENKEEL_INLINE uint32_t TakeWith(Family& family, const Shares& share) {
  using Floats = typename Lanes<kLanes>::Floats;
  using Ints = typename Lanes<kLanes>::Ints;
  constexpr uint32_t kVectors = Family::kMost / kLanes;
  auto* const load0 = reinterpret_cast<Floats*>(family.load[0]);
  auto* const load1 = reinterpret_cast<Floats*>(family.load[1]);
  auto* const load2 = reinterpret_cast<Floats*>(family.load[2]);
  const auto* const numbers = reinterpret_cast<const Ints*>(kNumbers);
  const auto* const per_rank = reinterpret_cast<const Ints*>(family.per_rank);
  // A float that is not negative orders as the integer of its bits: the last four become the child's number,
  // so that one minimum finds the least and, of near equals, the first.
  Ints key[kVectors] = {}, least = {};
  EVENKEEL_UNROLL for (uint32_t v = 0; v < kVectors; ++v) {
    if (v > 0 && v * kLanes >= family.size) break;
    const Floats growth = (kLlmWeight * share[0]) * load0[v] + share[1] * load1[v] + share[2] * load2[v];
    key[v] = ((Ints)growth & ~15) | numbers[v];
    if (v == 0) least = key[v];
    KeepLeast(least, key[v]);
  }
  SpreadLeast(least);
  // All lanes are written although one changes: the next unit reads all, and cannot read past a narrower
  // store. No lane is looked up by its number either: the next unit waits for the loads, not for the number.
  EVENKEEL_UNROLL for (uint32_t v = 0; v < kVectors; ++v) {
    if (v > 0 && v * kLanes >= family.size) break;
    const Floats grown = (Floats)(per_rank[v] & (key[v] == least));
    load0[v] += share[0] * grown;
    load1[v] += share[1] * grown;
    load2[v] += share[2] * grown;
  }
  return family.child[least[0] & 15];
}

// A family of few children needs no more lanes than it has children.
template <int kLanes>
EVENKEEL_INLINE uint32_t Take(Family& family, const Shares& share) {
  if (family.size <= 4) return TakeWith<4>(family, share);
  if (kLanes == 4 || family.size > 8) return TakeWith<kLanes>(family, share);
  return TakeWith<8>(family, share);
}

// Units are on their way together, one on each level, and pass every family in their order: what one unit
// waits for does not keep the others waiting.
template <int kLanes>
EVENKEEL_INLINE void Descend(std::span<std::vector<Family>> levels, std::span<const Unit> units,
                             std::span<uint32_t> rank) {
  const size_t depth = levels.size();
  std::vector<Family*> families(depth);
  for (size_t d = 0; d < depth; ++d) families[d] = levels[depth - 1 - d].data();
  std::vector<uint32_t> at(depth + 1, 0);  // [levels from the root + 1] the family that a unit has come to
  for (size_t step = 0; step < units.size() + depth - 1; ++step) {
    for (size_t d = std::min(depth, step + 1); d-- > 0;) {
      const size_t unit = step - d;
      if (unit >= units.size()) break;
      at[d + 1] = Take<kLanes>(families[d][at[d]], units[unit].share);
      if (d + 1 == depth) rank[unit] = at[depth];
    }
  }
}

void DescendBaseline(std::span<std::vector<Family>> levels, std::span<const Unit> units,
                     std::span<uint32_t> rank) {
  Descend<4>(levels, units, rank);
}

EVENKEEL_AVX2 void DescendAvx2(std::span<std::vector<Family>> levels, std::span<const Unit> units,
                               std::span<uint32_t> rank) {
  Descend<8>(levels, units, rank);
}

EVENKEEL_AVX512 void DescendAvx512(std::span<std::vector<Family>> levels, std::span<const Unit> units,
                                   std::span<uint32_t> rank) {
  Descend<16>(levels, units, rank);
}

}  // namespace

Family::Family() {
  for (auto& phase : load) std::fill(std::begin(phase), std::end(phase), kNever);
}

void Family::Append(uint32_t number, uint32_t num_ranks) {
  for (auto& phase : load) phase[size] = 0;
  per_rank[size] = 1.0f / static_cast<float>(num_ranks);
  child[size++] = number;
}

FamilyTree::FamilyTree(const PhaseRanks& ranks) {
  Level level = Leaves(ranks);
  levels_.push_back(level.families);
  while (level.families.size() > 1) {
    level = Over(level);
    levels_.push_back(level.families);
  }
}

void FamilyTree::Place(std::span<const Unit> units, std::span<uint32_t> rank, Width width) {
  (width == Width::kSixteen ? DescendAvx512
   : width == Width::kEight ? DescendAvx2
                            : DescendBaseline)(levels_, units, rank);
}

std::vector<Shares> FamilyTree::Loads(uint32_t num_ranks) const {
  std::vector<Shares> loads(num_ranks);
  for (const Family& family : leaves()) {
    for (uint32_t i = 0; i < family.size; ++i) {
      for (int p = 0; p < kNumPhases; ++p) loads[family.child[i]][p] = family.load[p][i];
    }
  }
  return loads;
}

}  // namespace evenkeel::reorder
