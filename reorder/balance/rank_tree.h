// The ranks of a phase as a tree of small groups, in which a unit finds a rank in O(log ranks).
//
//   RankTree tree(ranks, /*num_phases=*/3);
//   const std::vector<uint32_t> rank = tree.Place(shares);   // [units]
//   tree.Loads().row(rank[0]);
//
// A phase is a column of numbers here: the first one is the llm, then the encoders in any number.
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reorder/layout.h"

namespace evenkeel::reorder {

// What every unit adds to each phase, or what every rank has of it, as a share of the mean load of a rank: 1
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

// The llm weighs more: its excess cannot be moved by item afterwards.
inline constexpr float kLlmWeight = 2;

class RankTree {
 public:
  static constexpr uint32_t kMaxChildren = 16;

  // A leaf group has a node's ranks, or an even part of a node of more than 16, or several nodes of few.
  RankTree(const PhaseRanks& ranks, size_t num_phases);

  // Takes every unit, in order, from the root to the child where it adds least to the sum over the phases of
  // squared loads: the least sum of share * load, the llm's times its weight, the first of equals. Returns
  // the rank of each.
  std::vector<uint32_t> Place(const ShareTable& units);

  // The ranks of every leaf group.
  std::vector<std::vector<uint32_t>> LeafGroups() const;
  // [ranks] what was placed on each, summed in the order of the units.
  ShareTable Loads() const;

 private:
  struct Group {
    float per_rank[kMaxChildren] = {};  // 1 / ranks below the child
    uint32_t child[kMaxChildren] = {};  // a group of the level below, or a rank
    uint32_t size = 0;                  // children
    uint32_t num_ranks = 0;             // below it
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
