// Finds the row of a number by a binary search, among the rows that are left out or among sums over blocks of bits.
#include "dataset/index/remaining_rows.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace evenkeel::dataset {
namespace {

constexpr size_t kBlock = 64;  // words

}  // namespace

RemainingRows RemainingRows::Without(uint64_t total, std::vector<uint64_t> rows) {
  RemainingRows out;
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  out.size_ = total - rows.size();
  out.without_ = std::move(rows);
  return out;
}

RemainingRows RemainingRows::Of(uint64_t total, std::vector<uint64_t> bits) {
  RemainingRows out;
  bits.resize((total + 63) / 64);
  for (size_t i = 0; i < bits.size(); ++i) {
    if (i % kBlock == 0) out.before_.push_back(out.size_);
    out.size_ += static_cast<uint64_t>(std::popcount(bits[i]));
  }
  out.bits_ = std::move(bits);
  return out;
}

uint64_t RemainingRows::RowOf(uint64_t index) const {
  if (bits_.empty()) {
    // Before without_[i] there are without_[i] - i rows that remain. This number never decreases, so a binary search finds
    // the row.
    size_t low = 0, high = without_.size();
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (without_[middle] - middle <= index) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return index + low;
  }
  const auto after = std::upper_bound(before_.begin(), before_.end(), index);
  const auto block = static_cast<size_t>(after - before_.begin()) - 1;
  uint64_t left = index - before_[block];
  size_t word = block * kBlock;
  while (left >= static_cast<uint64_t>(std::popcount(bits_[word]))) {
    left -= static_cast<uint64_t>(std::popcount(bits_[word++]));
  }
  uint64_t rest = bits_[word];
  for (; left > 0; --left) rest &= rest - 1;
  return word * 64 + static_cast<uint64_t>(std::countr_zero(rest));
}

}  // namespace evenkeel::dataset
