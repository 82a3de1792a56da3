// The ranks of a phase as a tree of small families: who is near whom, in a form that is quick to choose from.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/words.h"
#include "reorder/layout.h"

namespace evenkeel::reorder {

// What a unit adds to every phase, as a share of a rank's mean load; or what a rank has: 1 is the mean.
using Shares = std::array<float, kNumPhases>;

// Four lanes of the baseline instruction set. The same operations in the same order on every CPU.
using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));

// A tree node and the loads of its children. Above the leaves a child's load is per rank below it.
class Family {
 public:
  static constexpr uint32_t kMost = 16;  // children

  Family();
  void Append(uint32_t child, uint32_t num_ranks);
  // The child with the least sum over the phases of weight * load, the first of equals; `share` is added to
  // its load.
  uint32_t Take(const Shares& weight, const Shares& share);

  uint32_t size() const { return size_; }
  uint32_t child(uint32_t i) const { return child_[i]; }  // a family of the level below, or a rank

 private:
  Float4 load_[kNumPhases][kMost / 4];
  float per_rank_[kMost] = {};  // 1 / ranks below
  uint32_t child_[kMost] = {};
  uint32_t size_ = 0;
};

// Levels of families, leaves first, one family at the top. A leaf family is a node's ranks, or an even part
// of a node of more than 16, or several nodes of few.
std::vector<std::vector<Family>> MakeFamilies(const PhaseRanks& ranks);

}  // namespace evenkeel::reorder
