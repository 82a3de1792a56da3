// Sealed memory by memfd_create and fcntl(F_ADD_SEALS).
#include "transport/sealed_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::transport {
namespace {

constexpr uint64_t kPageBytes = 4096;
// Together they make a file constant: its size, its bytes, and the seals themselves.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

// Fresh pages in place of those at `to`; false if there cannot be another mapping.
bool MapFreshPages(std::byte* to, uint64_t num_bytes) {
  return mmap(to, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == to;
}

// Maps the pages at `from` at `to` instead, in place of what is there. Libraries that watch memory, such as the registration
// caches of UCX and MPI, see the old pages go by the call of mmap. What follows is the system call itself: UCX 1.13 and Open
// MPI 4 put a function in the place of mremap that loses the new address (openucx/ucx#8820), so that the pages end anywhere
// and the buffer keeps what it had.
bool MovePages(std::byte* from, std::byte* to, uint64_t num_bytes) {
  if (!MapFreshPages(to, num_bytes)) return false;
  const long at = syscall(SYS_mremap, from, num_bytes, num_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
  if (at != -1) return true;
  // A failed call may have unmapped its target already.
  MapFreshPages(to, num_bytes);
  return false;
}

absl::Status NoMemory(const char* call, uint64_t num_bytes) {
  const int error = errno;
  return absl::ResourceExhaustedError(absl::StrCat(num_bytes, " bytes of sealed memory: ", call, ": ",
                                                   std::generic_category().message(error),
                                                   "; free memory or raise the limits (ulimit -n, the "
                                                   "container's memory, vm.max_map_count)"));
}

}  // namespace

absl::StatusOr<SealedMemory> SealedMemory::CopyOf(std::span<const std::byte> bytes) {
  Handle file(memfd_create("evenkeel-part", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) return NoMemory("memfd_create", bytes.size());
  // By write, which neither zeroes the pages first nor maps them.
  for (std::span<const std::byte> left = bytes; !left.empty();) {
    const ssize_t written = write(file.get(), left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return NoMemory("write", bytes.size());
    left = left.subspan(static_cast<size_t>(written));
  }
  if (fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) return NoMemory("fcntl(F_ADD_SEALS)", bytes.size());
  return SealedMemory(std::move(file));
}

absl::StatusOr<ReceivedMemory> ReceivedMemory::Map(int handle, uint64_t num_bytes) {
  const int seals = fcntl(handle, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::InvalidArgumentError("the descriptor is not sealed memory");
  }
  // Reading huge pages that do not exist would raise SIGBUS, so hugetlbfs is refused.
  struct statfs system {};
  struct stat file {};
  if (fstatfs(handle, &system) != 0 || system.f_type != TMPFS_MAGIC || fstat(handle, &file) != 0 ||
      !S_ISREG(file.st_mode)) {
    return absl::InvalidArgumentError("the descriptor is not memory of ordinary pages");
  }
  if (static_cast<uint64_t>(file.st_size) != num_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the sealed memory has ", file.st_size, " bytes, announced were ", num_bytes));
  }
  if (num_bytes == 0) return ReceivedMemory({});
  // Populated now, because all of it is about to be read. Only for reading: populating a writable private
  // mapping would copy every page.
  void* begin = mmap(nullptr, num_bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, handle, 0);
  if (begin == MAP_FAILED) return NoMemory("mmap", num_bytes);
  return ReceivedMemory({static_cast<std::byte*>(begin), num_bytes});
}

ReceivedMemory::~ReceivedMemory() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

bool ReceivedMemory::CanMoveTo(std::span<std::byte> to) {
  return reinterpret_cast<uintptr_t>(to.data()) % kPageBytes == 0;
}

void ReceivedMemory::MoveTo(std::span<std::byte> to) {
  const std::span<std::byte> from = std::exchange(bytes_, {});
  const uint64_t whole = from.size() / kPageBytes * kPageBytes;
  const bool moved = whole > 0 && mprotect(from.data(), from.size(), PROT_READ | PROT_WRITE) == 0 &&
                     MovePages(from.data(), to.data(), whole);
  const uint64_t done = moved ? whole : 0;
  if (done == from.size()) return;
  std::memcpy(to.data() + done, from.data() + done, from.size() - done);
  munmap(from.data() + done, from.size() - done);
}

}  // namespace evenkeel::transport
