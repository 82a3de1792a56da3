// A keyed permutation of 0..n-1 that is never materialised.
//
// Numbers are written as pairs (left, right) with left < a = ceil(sqrt(n)) and right < b = ceil(n / a). Each
// of twelve rounds adds to one half, modulo its range, a mixed and keyed value of the other half. A round is
// undone by subtracting the same value, so their composition is a permutation of the a*b >= n pairs. A result
// that is not below n is passed through again until it is. This keeps it a permutation of 0..n-1, and happens
// with a probability below 1/sqrt(n).
//
// Part of every stream: changing any constant needs a new stream version. Not cryptographic.
// Thread safety: a plain value.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

namespace evenkeel::dataset {

// A well-mixed function of a list of numbers; their order matters.
uint64_t MixKey(std::initializer_list<uint64_t> values);

class Permutation {
 public:
  // n: 1 to 2^62.
  Permutation(uint64_t key, uint64_t n);

  uint64_t size() const { return n_; }
  // i < n. The time does not depend on n.
  uint64_t At(uint64_t i) const;
  // The i with At(i) == value.
  uint64_t PositionOf(uint64_t value) const;

 private:
  static constexpr int kRounds = 12;

  uint64_t Forward(uint64_t x) const;
  uint64_t Backward(uint64_t x) const;
  // The value that round `r` adds, below `range`.
  uint64_t Round(int r, uint64_t half, uint64_t range) const;

  uint64_t n_;
  uint64_t a_;
  uint64_t b_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace evenkeel::dataset
