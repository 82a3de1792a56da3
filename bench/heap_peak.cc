// Counts what operator new gives out and operator delete takes back.
#include "bench/heap_peak.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> held{0}, peak{0};

void* Counted(void* memory) {
  if (memory == nullptr) std::abort();
  const size_t bytes = malloc_usable_size(memory), now = held.fetch_add(bytes) + bytes;
  size_t before = peak.load();
  while (now > before && !peak.compare_exchange_weak(before, now)) {
  }
  return memory;
}

void Release(void* memory) {
  if (memory != nullptr) held.fetch_sub(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) { return Counted(std::malloc(size)); }
void* operator new(size_t size, std::align_val_t alignment) {
  const size_t to = static_cast<size_t>(alignment);
  return Counted(std::aligned_alloc(to, (size + to - 1) / to * to));
}
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete(void* memory, size_t) noexcept { Release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Release(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Release(memory); }

HeapUse HeapNow() { return {.held = held.load(), .peak = peak.load()}; }
void ResetHeapPeak() { peak = held.load(); }
