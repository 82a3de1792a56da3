// The resizer's AVX-512 path with its instructions emulated by SIMDe, for cores that have none: linked before
// the library, it takes the place of the library's own, and every resize that asks for the best path goes
// through it.
#define SIMDE_ENABLE_NATIVE_ALIASES
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // SIMDe's unions, of which one member is set
#endif
#include <simde/x86/avx512.h>

#include <cstring>

#include "core/cpu.h"

// No target: the compiler may not make AVX-512 of what stands for it.
#define EVENKEEL_AVX512
#define EVENKEEL_AVX512_INLINE inline

namespace evenkeel::preprocess {
namespace {

bool MayUseAvx512Vnni() { return true; }

// vpdpbusd: four products of a byte and a signed byte are added to each lane.
void Accumulate(__m512i& sum, __m512i bytes, __m512i digits) {
  sum = _mm512_dpbusd_epi32(sum, bytes, digits);
}

// vpsrad with one count for all lanes, which this SIMDe does not have.
__m512i Sra512(__m512i lanes, __m128i count) {
  __m128i parts[4];
  std::memcpy(parts, &lanes, sizeof(parts));
  for (__m128i& part : parts) part = _mm_sra_epi32(part, count);
  std::memcpy(&lanes, parts, sizeof(parts));
  return lanes;
}
#define _mm512_sra_epi32 Sra512

}  // namespace
}  // namespace evenkeel::preprocess

#include "preprocess/resize/resize_avx512.cc"  // NOLINT: the file under test, compiled once more
