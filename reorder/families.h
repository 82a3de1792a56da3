// The ranks of a phase as a tree of small families: who is near whom, in a form that is quick to choose from.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/words.h"
#include "reorder/lanes.h"
#include "reorder/layout.h"

namespace evenkeel::reorder {

// What a unit adds to every phase, as a share of a rank's mean load; or what a rank has: 1 is the mean.
using Shares = std::array<float, kNumPhases>;

// The llm weighs more: its excess cannot be moved by item afterwards.
inline constexpr float kLlmWeight = 2;

// A unit of the problem and what it adds.
struct Unit {
  Shares share;
  uint32_t index = 0;
};

// A tree node and the loads of its children. Above the leaves a child's load is per rank below it.
struct alignas(64) Family {
  static constexpr uint32_t kMost = 16;  // children

  Family();
  void Append(uint32_t child, uint32_t num_ranks);

  float load[kNumPhases][kMost];
  float per_rank[kMost] = {};  // 1 / ranks below
  uint32_t child[kMost] = {};  // a family of the level below, or a rank
  uint32_t size = 0;
};

class FamilyTree {
 public:
  // A leaf family is a node's ranks, or an even part of a node of more than 16, or several nodes of few.
  explicit FamilyTree(const PhaseRanks& ranks);

  // Every unit, in order, from the root to the child that has least where the unit has much: the least sum
  // over the phases of share * load, the llm's times its weight, the first of equals. Writes the rank of
  // each, the same for every width.
  void Place(std::span<const Unit> units, std::span<uint32_t> rank, Width width = Widest(Width::kSixteen));

  const std::vector<Family>& leaves() const { return levels_.front(); }
  // [ranks] what was placed on each, summed in the order of the units.
  std::vector<Shares> Loads(uint32_t num_ranks) const;

 private:
  std::vector<std::vector<Family>> levels_;  // leaves first, one family at the top
};

}  // namespace evenkeel::reorder
