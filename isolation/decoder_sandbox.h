// Takes from the calling process everything that decoding does not need. libseccomp is confined to the .cc.
//
// After Confine the process may use the memory that it has and may get, read from, write to and close the
// files it holds or is sent, look at clocks, and end. Any other system call ends it: opening a file or a
// socket, making a process or a thread, running a program, making memory executable.
//
// In builds with sanitizers, whose run-time makes calls of its own and reserves terabytes of address space,
// neither the filter nor the limit of memory is set; the limits of the processes' number of files and cores
// are. `kConfinesFully` says which.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace evenkeel::isolation {

#ifdef EVENKEEL_SANITIZED
inline constexpr bool kConfinesFully = false;
#else
inline constexpr bool kConfinesFully = true;
#endif

// How a confined process ends where an allocation fails. See decoder_allocations.cc.
inline constexpr int kExitNoMemory = 86;

// `memory_bytes`: what it may allocate beyond what it has now; shared memory is not counted. There is no way
// back. FailedPrecondition: this kernel, or this container, does not allow it.
absl::Status Confine(uint64_t memory_bytes);

// From now on an allocation that fails ends the process with kExitNoMemory.
void EndWhereMemoryEnds();

}  // namespace evenkeel::isolation
