// The rows of a dataset that a job draws, and their numbering: all but a few, or those that a selection has.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <vector>

namespace evenkeel::dataset {

class RemainingRows {
 public:
  RemainingRows() = default;
  // Of `total` rows all but these, in any order; repetitions are allowed. 8 bytes for each.
  static RemainingRows Without(uint64_t total, std::vector<uint64_t> rows);
  // Row i remains if bit i % 64 of word i / 64 is set; bits from `total` on are not. A bit for every row, and 8 bytes for
  // every 4096.
  static RemainingRows Of(uint64_t total, std::vector<uint64_t> bits);

  uint64_t size() const { return size_; }
  // The row with number `index` among the remaining ones; index < size().
  uint64_t RowOf(uint64_t index) const;

 private:
  uint64_t size_ = 0;
  std::vector<uint64_t> without_;  // ascending, distinct; empty where there are bits
  std::vector<uint64_t> bits_;
  std::vector<uint64_t> before_;  // rows that remain before each block of bits
};

}  // namespace evenkeel::dataset
