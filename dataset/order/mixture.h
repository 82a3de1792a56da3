// The dataset of the draw at a position, and how many draws of that dataset came before.
//
// Weights become whole numbers over a period of at most 65,536 draws: exactly if a period allows that,
// otherwise the nearest ones. Within the period the k-th of a dataset's q draws belongs at (k + 1/2) / q;
// draws are sorted by that (ties by dataset). So every prefix has every dataset's share to within about one
// draw, and all lookups are O(1).
//
// Part of every stream. Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>
#include <vector>

namespace evenkeel::dataset {

inline constexpr uint64_t kMaxPeriod = 65536;
inline constexpr uint64_t kNever = uint64_t{1} << 62;

class Mixture {
 public:
  // One weight a dataset: not negative, at least one of them positive, at most kMaxPeriod of them positive.
  explicit Mixture(const std::vector<double>& weights);

  struct Draw {
    uint32_t dataset = 0;
    uint64_t number = 0;  // draws of this dataset before this one
  };
  Draw At(uint64_t position) const;

  // How many of the first `position` draws are of the dataset. Time proportional to the period.
  uint64_t CountBefore(uint32_t dataset, uint64_t position) const;

  // The first draw before which a dataset has had `counts` of its draws, which are above 0; kNever: no stream is as long, as
  // with counts of kNever alone. Of datasets with a weight of 0 the count does not matter. Time proportional to the period.
  uint64_t FirstAfter(const std::vector<uint64_t>& counts) const;

  uint64_t period() const { return slots_.size(); }
  // Draws a period.
  uint64_t count(uint32_t dataset) const { return counts_[dataset]; }

 private:
  struct Slot {
    uint32_t dataset = 0;
    uint32_t before = 0;  // draws of the dataset before this slot in the period
  };
  std::vector<uint64_t> counts_;
  std::vector<Slot> slots_;
};

}  // namespace evenkeel::dataset
