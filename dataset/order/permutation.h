// A keyed permutation of 0..n-1 that is never materialised.
//
// The numbers are written as pairs (left, right) with left < a = ceil(sqrt(n)) and right < b = ceil(n / a).
// Twelve rounds add to one half, modulo its range, a mixed and keyed value of the other half; each is undone
// by subtracting the same value, so their composition is a permutation of the a*b >= n pairs. A result that
// is not below n is fed through again until it is, which keeps it a permutation of 0..n-1 and happens with
// probability below 1/sqrt(n).
//
// Part of every stream: a change of any constant is a new stream_version. Not cryptographic.
// Thread safety: a plain value.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

namespace evenkeel::dataset {

// A well-mixed function of a list of numbers; their order counts.
uint64_t MixKey(std::initializer_list<uint64_t> values);

class Permutation {
 public:
  // n: 1 to 2^62.
  Permutation(uint64_t key, uint64_t n);

  uint64_t size() const { return n_; }
  // i < n. Time does not depend on n.
  uint64_t At(uint64_t i) const;
  // The i with At(i) == value.
  uint64_t PositionOf(uint64_t value) const;

 private:
  static constexpr int kRounds = 12;

  uint64_t Forward(uint64_t x) const;
  uint64_t Backward(uint64_t x) const;
  // What round `r` adds, below `range`.
  uint64_t Round(int r, uint64_t half, uint64_t range) const;

  uint64_t n_;
  uint64_t a_;
  uint64_t b_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace evenkeel::dataset
