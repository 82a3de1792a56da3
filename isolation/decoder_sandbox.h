// Removes all rights that decoding does not need from the process. libseccomp is confined to the .cc.
//
// After Confine the process may use and allocate memory, read, write and close the files that it has or
// receives, read clocks, and exit. Any other system call ends it: opening a file or a socket, making a
// process or thread, running a program, making memory executable.
//
// Sanitizers make system calls of their own and reserve terabytes of address space, so builds with them set
// neither the filter nor the memory limit; the limits on files, processes and core dumps are set.
// `kConfinesFully` distinguishes the two.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace evenkeel::isolation {

#ifdef EVENKEEL_SANITIZED
inline constexpr bool kConfinesFully = false;
#else
inline constexpr bool kConfinesFully = true;
#endif

// The exit code of a confined process whose allocation failed. See decoder_allocations.cc.
inline constexpr int kExitNoMemory = 86;

// `memory_bytes`: what it may allocate in addition to what it has now; shared memory is not counted. It
// cannot be undone. FailedPrecondition: the kernel or the container does not allow it.
absl::Status Confine(uint64_t memory_bytes);

// Writes the filter of Python processes (python_items.py loads it) to `file`, as the kernel takes it. They may
// do what a decoder may, and ask about themselves; any other system call fails with EPERM.
absl::Status WritePythonFilter(int file);

// From now on an allocation that fails ends the process with kExitNoMemory.
void EndWhereMemoryEnds();

}  // namespace evenkeel::isolation
