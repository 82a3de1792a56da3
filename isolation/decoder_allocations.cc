// malloc and its relatives for decoder processes: an allocation that fails ends the process.
//
// Many libraries report "no memory" as a damaged or truncated file. Memory depends on the machine, so it must
// never decide whether an item is valid. A process that ends fails the attempt instead. In all other
// processes these functions only call the C library's own.
//
// The C library uses the program's malloc if it defines one. Builds with sanitizers have a malloc of their
// own, which ends the process by itself.
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "isolation/decoder_sandbox.h"

namespace evenkeel::isolation {
namespace {

// Set once, while the process has one thread.
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

// The C library's own functions.
// NOLINTBEGIN(bugprone-reserved-identifier)
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);
// NOLINTEND(bugprone-reserved-identifier)

void* malloc(size_t size) { return evenkeel::isolation::Checked(__libc_malloc(size)); }
void* calloc(size_t count, size_t size) { return evenkeel::isolation::Checked(__libc_calloc(count, size)); }
// realloc to size zero frees and returns null: that is no failure.
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
