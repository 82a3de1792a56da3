// Which units each rank has, sorted out for all ranks together by counting.
//
//   std::vector<uint32_t> numbers(rank.size());
//   const ByRank by_rank(rank, num_ranks, numbers);
//   for (uint32_t unit : by_rank.of(3)) ...          // ascending
#pragma once

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

}  // namespace evenkeel::reorder
