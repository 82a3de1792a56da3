// The address of a text in an MDS shard (dataset/format/mds.h), and the bytes of the shard that it is made of.
//
// The top two bits of an offset are set: the rest is where the sample begins (32 bits), and how many of its bytes the text
// is made of (30), at most the largest such number.
//
// Thread safety: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

inline constexpr int kMdsSizeBits = 30;
inline constexpr uint64_t kMaxMdsSize = (1ull << kMdsSizeBits) - 1;

inline bool IsMdsAddress(uint64_t offset) { return offset >> 62 == 3; }

inline uint64_t MdsAddress(uint64_t begin, uint64_t num_bytes) {
  return 3ull << 62 | begin << kMdsSizeBits | std::min(num_bytes, kMaxMdsSize);
}

// Makes offset and size of an address those of the bytes; leaves another range as it is.
inline void LocateText(ByteRange& range) {
  if (!IsMdsAddress(range.offset)) return;
  range.size = range.offset & kMaxMdsSize;
  range.offset = range.offset >> kMdsSizeBits & 0xFFFFFFFF;
}

}  // namespace evenkeel::dataset
