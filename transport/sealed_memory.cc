// Sealed memory by memfd_create and fcntl(F_ADD_SEALS).
#include "transport/sealed_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
  bool moved = false;
  if (whole > 0 && mprotect(from.data(), from.size(), PROT_READ | PROT_WRITE) == 0) {
    moved = mremap(from.data(), whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED, to.data()) != MAP_FAILED;
    // A failed call may have unmapped its target already.
    if (!moved) {
      mmap(to.data(), whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
  }
  const uint64_t done = moved ? whole : 0;
  if (done == from.size()) return;
  std::memcpy(to.data() + done, from.data() + done, from.size() - done);
  munmap(from.data() + done, from.size() - done);
}

}  // namespace evenkeel::transport
