// Which units each rank has.
//
// Sorted out for all ranks together by counting:
//
//   std::vector<uint32_t> numbers(rank.size());
//   const ByRank by_rank(rank, num_ranks, numbers);
//   for (uint32_t unit : by_rank.of(3)) ...          // ascending
//
// For a few ranks, at a third of that:
//
//   ChainedByRank chained(rank, num_ranks, numbers);
//   for (uint32_t unit : chained.of(3)) ...          // ascending; valid until the next call
//
// Thread safety: none; one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel::reorder {

class ByRank {
 public:
  ByRank() = default;
  // `rank`: of every unit, below `num_ranks`. `numbers`: memory for as many, which must outlive this.
  ByRank(std::span<const uint32_t> rank, size_t num_ranks, std::span<uint32_t> numbers)
      : numbers_(numbers), begin_(num_ranks + 1, 0) {
    for (uint32_t r : rank) ++begin_[r + 1];
    for (size_t r = 1; r < begin_.size(); ++r) begin_[r] += begin_[r - 1];
    std::vector<uint32_t> next = begin_;
    for (uint32_t unit = 0; unit < rank.size(); ++unit) numbers_[next[rank[unit]]++] = unit;
  }

  std::span<const uint32_t> of(uint32_t rank) const {
    return numbers_.subspan(begin_[rank], begin_[rank + 1] - begin_[rank]);
  }

 private:
  std::span<uint32_t> numbers_;
  std::vector<uint32_t> begin_;  // [ranks + 1]
};

class ChainedByRank {
 public:
  ChainedByRank() = default;
  // As those of ByRank.
  ChainedByRank(std::span<const uint32_t> rank, size_t num_ranks, std::span<uint32_t> numbers)
      : before_(numbers), last_(num_ranks, kNone) {
    uint32_t* const last = last_.data();
    for (uint32_t unit = 0; unit < rank.size(); ++unit) {
      numbers[unit] = last[rank[unit]];
      last[rank[unit]] = unit;
    }
  }

  std::span<const uint32_t> of(uint32_t rank) {
    units_.clear();
    for (uint32_t unit = last_[rank]; unit != kNone; unit = before_[unit]) units_.push_back(unit);
    std::reverse(units_.begin(), units_.end());
    return units_;
  }

 private:
  static constexpr uint32_t kNone = 0xffffffffu;

  std::span<uint32_t> before_;   // [units] the unit before it on the same rank, or kNone
  std::vector<uint32_t> last_;   // [ranks]
  std::vector<uint32_t> units_;  // of the rank that was asked for
};

}  // namespace evenkeel::reorder
