// malloc and its kin, for decoder processes: one that fails ends the process.
//
// A library that is told "no memory" often calls its file damaged, or takes it for ended, and memory must
// never decide what an item is: it depends on the machine. A process that ends fails the attempt instead.
// Everywhere else these are the C library's own functions, one call further.
//
// The C library looks for the program's own malloc first. Builds with sanitizers have theirs, which ends the
// process by itself.
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "isolation/decoder_sandbox.h"

namespace evenkeel::isolation {
namespace {

// Set once, in a process of one thread.
bool ends_where_memory_ends = false;

}  // namespace

void EndWhereMemoryEnds() { ends_where_memory_ends = true; }

#ifndef EVENKEEL_SANITIZED
namespace {

void* Checked(void* memory) {
  if (memory == nullptr && ends_where_memory_ends) _exit(kExitNoMemory);
  return memory;
}

}  // namespace
#endif

}  // namespace evenkeel::isolation

#ifndef EVENKEEL_SANITIZED
extern "C" {

// The C library's names.
// NOLINTBEGIN(bugprone-reserved-identifier)
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);
// NOLINTEND(bugprone-reserved-identifier)

void* malloc(size_t size) { return evenkeel::isolation::Checked(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) { return evenkeel::isolation::Checked(__libc_calloc(count, size)); }
// A size of zero frees: that it returns nothing is no failure.
void* realloc(void* memory, size_t size) {
  void* out = __libc_realloc(memory, size);
  return size == 0 ? out : evenkeel::isolation::Checked(out);
}
void* memalign(size_t alignment, size_t size) {
  return evenkeel::isolation::Checked(__libc_memalign(alignment, size));
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** out, size_t alignment, size_t size) {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) return EINVAL;
  void* memory = memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}
void free(void* memory) { __libc_free(memory); }

}  // extern "C"
#endif
