#include "tests/preprocess/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<uint64_t> count{0}, bytes{0};

void* Counted(size_t size) {
  ++count;
  bytes += size;
  return std::malloc(size);
}

}  // namespace

// Not inlined: the compiler would take them for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t size) {
  if (void* memory = Counted(size)) return memory;
  throw std::bad_alloc();
}
// For std::get_temporary_buffer, whose memory comes back through the plain delete.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept { return Counted(size); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace evenkeel::preprocess {

CountedAllocations::CountedAllocations() : count_before_(::count), bytes_before_(::bytes) {}
uint64_t CountedAllocations::count() const { return ::count - count_before_; }
uint64_t CountedAllocations::bytes() const { return ::bytes - bytes_before_; }

}  // namespace evenkeel::preprocess
