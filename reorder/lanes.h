// Vectors of four, eight or sixteen lanes for inner loops that are compiled once for the baseline instruction
// set, once for AVX2 and some once for AVX-512. All do the same operations on every lane, and none is fused:
// the results are the same bits.
//
// Not for arithmetic across lanes, whose order would matter: minima only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu.h"

namespace evenkeel::reorder {

#define EVENKEEL_INLINE __attribute__((always_inline)) inline
#define EVENKEEL_UNROLL _Pragma("GCC unroll 4")
#define EVENKEEL_INLINE_LAMBDA __attribute__((always_inline))

template <int kLanes>
struct Lanes {
  typedef float Floats __attribute__((vector_size(4 * kLanes), may_alias));
  typedef int32_t Ints __attribute__((vector_size(4 * kLanes), may_alias));
};

// Vectors by reference: how they are passed by value differs between instruction sets.
template <typename Vector>
EVENKEEL_INLINE void KeepLeast(Vector& least, const Vector& v) {
  least = least < v ? least : v;
}

// The least of all lanes, in all lanes.
template <typename Vector>
EVENKEEL_INLINE void SpreadLeast(Vector& v) {
  if constexpr (sizeof(v) == 64) {
    KeepLeast(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    KeepLeast(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    KeepLeast(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    KeepLeast(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  } else if constexpr (sizeof(v) == 32) {
    KeepLeast(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
    KeepLeast(v, __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
    KeepLeast(v, __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
  } else {
    KeepLeast(v, __builtin_shufflevector(v, v, 2, 3, 0, 1));
    KeepLeast(v, __builtin_shufflevector(v, v, 1, 0, 3, 2));
  }
}

// How many lanes.
enum class Width { kFour, kEight, kSixteen };

// The widest that this process may use, up to `most`; kFour is everywhere.
inline Width Widest(Width most = Width::kEight) {
  return std::min(most, MayUseAvx512() ? Width::kSixteen : MayUseAvx2() ? Width::kEight : Width::kFour);
}

#ifdef __x86_64__
#define EVENKEEL_AVX2 __attribute__((target("avx2")))
#define EVENKEEL_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#else
#define EVENKEEL_AVX2
#define EVENKEEL_AVX512
#endif

}  // namespace evenkeel::reorder
