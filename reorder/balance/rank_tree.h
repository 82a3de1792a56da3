// The ranks of a phase as a tree of small groups, in which a unit finds a rank in O(log ranks).
//
// Example:
//     RankTree tree(ranks, /*num_phases=*/3);
//     const std::vector<uint32_t> rank = tree.Place(shares);  // [units]
//     const ShareTable loads = tree.Loads();                  // [ranks, phases]
//
// Phases are columns of numbers here: the first one is the llm, followed by any number of encoders.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reorder/layout.h"

namespace evenkeel::reorder {

// The share of every unit, or the load of every rank, in each phase, relative to the mean load of a rank: 1
// is the mean. [rows, phases], row-major; the llm is phase 0.
class ShareTable {
 public:
  ShareTable(size_t rows, size_t num_phases) : num_phases_(num_phases), values_(rows * num_phases, 0) {}

  size_t num_rows() const { return num_phases_ == 0 ? 0 : values_.size() / num_phases_; }
  size_t num_phases() const { return num_phases_; }
  std::span<float> row(size_t i) { return {values_.data() + i * num_phases_, num_phases_}; }
  std::span<const float> row(size_t i) const { return {values_.data() + i * num_phases_, num_phases_}; }

  friend bool operator==(const ShareTable&, const ShareTable&) = default;

 private:
  size_t num_phases_;
  std::vector<float> values_;
};

// The llm's weight: its excess cannot be moved item by item afterwards, unlike an encoder's.
inline constexpr float kLlmWeight = 2;

class RankTree {
 public:
  static constexpr uint32_t kMaxChildren = 16;

  // A leaf group has the ranks of a node, an even part of a node with more than 16, or several small nodes.
  RankTree(const PhaseRanks& ranks, size_t num_phases);

  // Places the units in order and returns the rank of each. A unit descends from the root to the child where
  // it adds least to the sum over the phases of weighted squared loads: where the sum of weight * share *
  // load is smallest, the first among equals.
  std::vector<uint32_t> Place(const ShareTable& units);

  // The ranks of every leaf group.
  std::vector<std::vector<uint32_t>> LeafGroups() const;
  // [ranks] The load of each rank, summed in the order of the units.
  ShareTable Loads() const;

 private:
  struct Group {
    float per_rank[kMaxChildren] = {};  // 1 / ranks below the child
    uint32_t child[kMaxChildren] = {};  // the index of a group in the level below, or a rank
    uint32_t size = 0;                  // number of children
    uint32_t num_ranks = 0;             // number of ranks below it
  };
  struct Level {
    std::vector<Group> groups;
    std::vector<float> load;  // [groups, phases, kMaxChildren] above the leaves per rank below the child
  };

  static void Append(uint32_t child, uint32_t num_ranks, Group& group);
  static std::vector<Group> GroupsOfRanks(const PhaseRanks& ranks);
  static std::vector<Group> GroupsOver(const std::vector<Group>& below);
  uint32_t PlaceAmongChildren(std::span<const float> share, Level& level, uint32_t group) const;

  const size_t num_phases_;
  const size_t num_ranks_;
  std::vector<Level> levels_;  // leaves first, one group at the top
};

}  // namespace evenkeel::reorder
