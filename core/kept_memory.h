// Freed memory that the process keeps, so that decoders do not touch new pages for every picture.
//
// A progressive JPEG needs 3 bytes a pixel for its coefficients, which libjpeg takes and frees for each
// picture. By default malloc returns such blocks to the system, and each picture costs a page fault for every
// 4 KiB.
//
// Thread safety: a function without state.
#pragma once

#include <cstdint>

namespace evenkeel {

// What one thread's heap keeps at most. Blocks of more than half of it are mapped and unmapped by themselves.
inline constexpr uint64_t kMaxKeptHeapBytes = 64 << 20;

// For programs, first thing in main: a library leaves its process's allocator alone. Without effect where the
// allocator is not glibc's, or GLIBC_TUNABLES sets something else.
void KeepFreedMemory();

}  // namespace evenkeel
