// Copies whole cache lines with non-temporal stores (SSE2), which bypass the caches.
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
  // Bytes up to the first line boundary and after the last one go by memcpy.
  size_t past_a_line = reinterpret_cast<uintptr_t>(to.data()) % kLineBytes;
  size_t done = past_a_line == 0 ? 0 : std::min(kLineBytes - past_a_line, from.size());
  std::memcpy(to.data(), from.data(), done);
  for (; from.size() - done >= kLineBytes; done += kLineBytes) {
    CopyLine(to.data() + done, from.data() + done);
  }
  std::memcpy(to.data() + done, from.data() + done, from.size() - done);
  _mm_sfence();  // non-temporal stores are weakly ordered; later stores must not become visible before them
}

#else

void CopyPastCaches(std::span<std::byte> to, std::span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

#endif

}  // namespace evenkeel::transport
