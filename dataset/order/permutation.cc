// A Feistel network over pairs of numbers; permutation.h explains why it is a permutation.
#include "dataset/order/permutation.h"

#include <cmath>

namespace evenkeel::dataset {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014; variant 13 of Stafford's mixers).
uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

uint64_t CeilSqrt(uint64_t n) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  // the double may be off by a little in either direction
  while (root > 1 && (root - 1) * (root - 1) >= n) --root;
  while (root * root < n) ++root;
  return root;
}

}  // namespace

uint64_t MixKey(std::initializer_list<uint64_t> values) {
  uint64_t mixed = kGolden;
  for (uint64_t value : values) mixed = Mix((mixed ^ value) + kGolden);
  return mixed;
}

Permutation::Permutation(uint64_t key, uint64_t n) : n_(n), a_(CeilSqrt(n)), b_((n + a_ - 1) / a_) {
  for (int r = 0; r < kRounds; ++r) keys_[r] = Mix(key + static_cast<uint64_t>(r + 1) * kGolden);
}

uint64_t Permutation::Round(int r, uint64_t half, uint64_t range) const {
  // The upper half of a 128-bit product maps a mixed value to [0, range) without a division.
  return static_cast<uint64_t>(static_cast<unsigned __int128>(Mix(half ^ keys_[r])) * range >> 64);
}

uint64_t Permutation::Forward(uint64_t x) const {
  uint64_t left = x / b_, right = x % b_;
  for (int r = 0; r < kRounds; r += 2) {
    left += Round(r, right, a_);
    if (left >= a_) left -= a_;
    right += Round(r + 1, left, b_);
    if (right >= b_) right -= b_;
  }
  return left * b_ + right;
}

uint64_t Permutation::Backward(uint64_t x) const {
  uint64_t left = x / b_, right = x % b_;
  for (int r = kRounds - 2; r >= 0; r -= 2) {
    uint64_t take = Round(r + 1, left, b_);
    right = right >= take ? right - take : right + b_ - take;
    take = Round(r, right, a_);
    left = left >= take ? left - take : left + a_ - take;
  }
  return left * b_ + right;
}

uint64_t Permutation::At(uint64_t i) const {
  uint64_t x = Forward(i);
  while (x >= n_) x = Forward(x);
  return x;
}

uint64_t Permutation::PositionOf(uint64_t value) const {
  uint64_t x = Backward(value);
  while (x >= n_) x = Backward(x);
  return x;
}

}  // namespace evenkeel::dataset
