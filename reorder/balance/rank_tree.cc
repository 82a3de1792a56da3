// Builds the tree of rank groups bottom-up, and lets units descend it from the root to a rank.
#include "reorder/balance/rank_tree.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace evenkeel::reorder {
namespace {

constexpr float kNever = 1e30f;  // the load of a child that does not exist

// Cuts [0, count) into even pieces of at most kMaxChildren.
template <typename Take>
void ForEachPiece(size_t count, const Take& take) {
  const size_t pieces = (count + RankTree::kMaxChildren - 1) / RankTree::kMaxChildren;
  for (size_t piece = 0; piece < pieces; ++piece) take(count * piece / pieces, count * (piece + 1) / pieces);
}

}  // namespace

void RankTree::Append(uint32_t child, uint32_t num_ranks, Group& group) {
  group.per_rank[group.size] = 1.0f / static_cast<float>(num_ranks);
  group.child[group.size++] = child;
  group.num_ranks += num_ranks;
}

// Groups never cross a node, except that small nodes share one: placing a unit in a group then also chooses
// its node.
std::vector<RankTree::Group> RankTree::GroupsOfRanks(const PhaseRanks& ranks) {
  std::vector<Group> groups;
  for (uint32_t n = 0; n + 1 < ranks.on_node_begin.size(); ++n) {
    const auto here = ranks.OnNode(n);
    ForEachPiece(here.size(), [&](size_t begin, size_t end) {
      if (groups.empty() || groups.back().num_ranks + (end - begin) > kMaxChildren / 2) groups.emplace_back();
      for (size_t i = begin; i < end; ++i) Append(here[i], 1, groups.back());
    });
  }
  return groups;
}

std::vector<RankTree::Group> RankTree::GroupsOver(const std::vector<Group>& below) {
  std::vector<Group> groups;
  ForEachPiece(below.size(), [&](size_t begin, size_t end) {
    groups.emplace_back();
    for (size_t i = begin; i < end; ++i) Append(static_cast<uint32_t>(i), below[i].num_ranks, groups.back());
  });
  return groups;
}

RankTree::RankTree(const PhaseRanks& ranks, size_t num_phases)
    : num_phases_(num_phases), num_ranks_(ranks.size()) {
  for (std::vector<Group> groups = GroupsOfRanks(ranks);; groups = GroupsOver(groups)) {
    Level& level = levels_.emplace_back();
    level.groups = groups;
    level.load.assign(groups.size() * num_phases * kMaxChildren, kNever);
    for (size_t row = 0; row < groups.size() * num_phases; ++row) {
      std::fill_n(level.load.begin() + static_cast<ptrdiff_t>(row * kMaxChildren),
                  groups[row / num_phases].size, 0.0f);
    }
    if (groups.size() <= 1) break;
  }
}

// The child, a group of the next level or a rank, that the unit goes to. The loops over children have a fixed
// number of turns, so that the compiler makes vectors of them.
uint32_t RankTree::PlaceAmongChildren(std::span<const float> share, Level& level, uint32_t number) const {
  const Group& group = level.groups[number];
  float* const load = level.load.data() + number * num_phases_ * kMaxChildren;
  // A load that grows by a share: (load + share)^2 - load^2 = 2 * load * share + share^2. Compared is half of
  // that, summed over the phases, without the last term, which is the same for every child.
  float growth[kMaxChildren] = {};
  for (size_t p = 0; p < num_phases_; ++p) {
    const float weighted = p == 0 ? kLlmWeight * share[0] : share[p];
    for (uint32_t c = 0; c < kMaxChildren; ++c) growth[c] += weighted * load[p * kMaxChildren + c];
  }
  // A float that is not negative orders as the integer of its bits. Its last four bits are replaced by the
  // child's number: one minimum then finds the least growth and, of nearly equal ones, the first child.
  int32_t least = std::numeric_limits<int32_t>::max();
  for (int32_t c = 0; c < static_cast<int32_t>(kMaxChildren); ++c) {
    least = std::min(least, (std::bit_cast<int32_t>(growth[c]) & ~15) | c);
  }
  const uint32_t chosen = static_cast<uint32_t>(least) & 15;
  for (size_t p = 0; p < num_phases_; ++p) {
    load[p * kMaxChildren + chosen] += share[p] * group.per_rank[chosen];
  }
  return group.child[chosen];
}

std::vector<uint32_t> RankTree::Place(const ShareTable& units) {
  std::vector<uint32_t> rank(units.num_rows());
  for (size_t unit = 0; unit < rank.size(); ++unit) {
    uint32_t at = 0;
    for (size_t level = levels_.size(); level-- > 0;) {
      at = PlaceAmongChildren(units.row(unit), levels_[level], at);
    }
    rank[unit] = at;
  }
  return rank;
}

std::vector<std::vector<uint32_t>> RankTree::LeafGroups() const {
  std::vector<std::vector<uint32_t>> leaves;
  for (const Group& group : levels_.front().groups) {
    leaves.emplace_back(group.child, group.child + group.size);
  }
  return leaves;
}

ShareTable RankTree::Loads() const {
  ShareTable loads(num_ranks_, num_phases_);
  const Level& leaves = levels_.front();
  for (size_t g = 0; g < leaves.groups.size(); ++g) {
    for (uint32_t c = 0; c < leaves.groups[g].size; ++c) {
      const std::span<float> of_rank = loads.row(leaves.groups[g].child[c]);
      for (size_t p = 0; p < num_phases_; ++p) {
        of_rank[p] = leaves.load[(g * num_phases_ + p) * kMaxChildren + c];
      }
    }
  }
  return loads;
}

}  // namespace evenkeel::reorder
