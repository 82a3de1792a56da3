// Copies cache lines with non-temporal stores, which do not displace what the cache has.
#include "transport/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace evenkeel::transport {

#ifdef __SSE2__

namespace {

constexpr size_t kLineBytes = 64;

void CopyLine(std::byte* to, const std::byte* from) {
  constexpr size_t kVectors = kLineBytes / sizeof(__m128i);
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  __m128i line[kVectors];
  for (size_t i = 0; i < kVectors; ++i) line[i] = _mm_loadu_si128(source + i);
  for (size_t i = 0; i < kVectors; ++i) _mm_stream_si128(target + i, line[i]);
}

}  // namespace

void CopyPastCaches(std::span<std::byte> to, std::span<const std::byte> from) {
  if (from.empty()) return;
  size_t past_a_line = reinterpret_cast<uintptr_t>(to.data()) % kLineBytes;
  size_t done = past_a_line == 0 ? 0 : std::min(kLineBytes - past_a_line, from.size());
  std::memcpy(to.data(), from.data(), done);
  for (; from.size() - done >= kLineBytes; done += kLineBytes) {
    CopyLine(to.data() + done, from.data() + done);
  }
  std::memcpy(to.data() + done, from.data() + done, from.size() - done);
  _mm_sfence();
}

#else

void CopyPastCaches(std::span<std::byte> to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

#endif

}  // namespace evenkeel::transport
