// Finds the phase that computes an item. An item names it by its medium and its tower: the phase's position
// among the phases that encode the medium, or kTargetTower for the one that generates it.
// Example:
//     const ItemPhases table(std::vector<Phase>{Phase::kLlm, Phase("tower", 1, {Medium::kImage})});
//     table.Find({.medium = Medium::kImage});  // 1, the number in the list
//     table.KindOf(1);                         // an image of tower 0
//
// Thread safety: immutable; needs none.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/words.h"

namespace evenkeel::reorder {

class ItemPhases {
 public:
  explicit ItemPhases(std::span<const Phase> phases) : phases_(phases.begin(), phases.end()) {
    for (size_t p = 0; p < phases.size(); ++p) {
      for (Medium medium : kItemMedia) {
        if (phases[p].encodes(medium)) of_[static_cast<size_t>(medium)].push_back(p);
        if (phases[p].generates(medium)) generator_of_[static_cast<size_t>(medium)] = p;
      }
    }
  }

  // Its place in the list; nullopt: no phase takes it.
  std::optional<size_t> Find(const SampleItem& item) const {
    const auto medium = static_cast<size_t>(item.medium);
    if (medium >= of_.size()) return std::nullopt;
    if (item.tower == kTargetTower) return generator_of_[medium];
    if (item.tower >= of_[medium].size()) return std::nullopt;
    return of_[medium][item.tower];
  }

  // An item without lengths that is found in the phase, of the first medium that it takes. Not for the llm.
  SampleItem KindOf(size_t phase) const {
    for (Medium medium : kItemMedia) {
      if (phases_[phase].generates(medium)) return {.medium = medium, .tower = kTargetTower};
      const std::vector<size_t>& towers = of_[static_cast<size_t>(medium)];
      for (size_t tower = 0; tower < towers.size(); ++tower) {
        if (towers[tower] == phase) return {.medium = medium, .tower = static_cast<uint8_t>(tower)};
      }
    }
    return {};
  }

  const std::vector<Phase>& phases() const { return phases_; }

 private:
  std::vector<Phase> phases_;
  std::array<std::vector<size_t>, 4> of_;  // by medium, then tower
  std::array<std::optional<size_t>, 4> generator_of_;
};

}  // namespace evenkeel::reorder
