#include "server/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel {
namespace {

absl::Status NoMemory(const char* what, uint64_t num_bytes) {
  return absl::UnavailableError(
      absl::StrCat("shared memory of ", num_bytes, " bytes: ", what, ": ", std::strerror(errno)));
}

}  // namespace

SharedMemory::Block::~Block() {
  if (owner_ != nullptr) owner_->Release(begin_);
}

void SharedMemory::Block::Swap(Block& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(begin_, other.begin_);
  std::swap(num_bytes_, other.num_bytes_);
}

SharedMemory::~SharedMemory() {
  MutexLock lock(mutex_);
  for (const auto& [begin, mapping] : mappings_) Unmap(const_cast<std::byte*>(begin), mapping);
}

absl::StatusOr<std::pair<std::byte*, SharedMemory::Mapping>> SharedMemory::Map(Use use, uint64_t num_bytes) {
  Mapping mapping{.capacity = RoundUpToPage(std::max<uint64_t>(num_bytes, 1)), .use = use};
  const int fd = memfd_create("evenkeel", MFD_CLOEXEC);
  if (fd < 0) return NoMemory("memfd_create", num_bytes);
  mapping.fd = fd;
  if (use == Use::kInput) {
    // The same file, opened so that it can not be written.
    mapping.fd = open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_RDONLY | O_CLOEXEC);
  }
  void* begin = MAP_FAILED;
  if (mapping.fd >= 0 && ftruncate(fd, static_cast<off_t>(mapping.capacity)) == 0) {
    begin = mmap(nullptr, mapping.capacity, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  const absl::Status failed = begin == MAP_FAILED ? NoMemory("mmap", num_bytes) : absl::OkStatus();
  if (mapping.fd != fd || !failed.ok()) close(fd);
  if (failed.ok()) return std::pair(static_cast<std::byte*>(begin), mapping);
  if (mapping.fd >= 0 && mapping.fd != fd) close(mapping.fd);
  return failed;
}

void SharedMemory::Unmap(std::byte* begin, const Mapping& mapping) {
  munmap(begin, mapping.capacity);
  close(mapping.fd);
}

std::byte* SharedMemory::TakeKept(uint64_t num_bytes) {
  MutexLock lock(mutex_);
  for (size_t i = kept_.size(); i-- > 0;) {
    std::byte* begin = kept_[i];
    if (mappings_.at(begin).capacity < num_bytes) continue;
    kept_.erase(kept_.begin() + static_cast<ptrdiff_t>(i));
    return begin;
  }
  return nullptr;
}

absl::StatusOr<SharedMemory::Block> SharedMemory::Allocate(Use use, uint64_t num_bytes) {
  Block block;
  block.num_bytes_ = num_bytes;
  if (use == Use::kInput) block.begin_ = TakeKept(num_bytes);
  if (block.begin_ == nullptr) {
    // Inputs come in few sizes, so that one serves the next.
    uint64_t capacity = num_bytes;
    if (use == Use::kInput && num_bytes <= kMaxKeptBytes) {
      for (capacity = 64 << 10; capacity < num_bytes;) capacity *= 2;
    }
    EVENKEEL_ASSIGN_OR_RETURN(const auto mapped, Map(use, capacity));
    block.begin_ = mapped.first;
    MutexLock lock(mutex_);
    mappings_.emplace(mapped.first, mapped.second);
  }
  block.owner_ = shared_from_this();
  return block;
}

void SharedMemory::Release(std::byte* begin) {
  Mapping mapping;
  {
    MutexLock lock(mutex_);
    const auto found = mappings_.find(begin);
    mapping = found->second;
    if (mapping.use == Use::kInput && mapping.capacity <= kMaxKeptBytes && kept_.size() < kMaxKept) {
      kept_.push_back(begin);
      return;
    }
    num_moved_ -= mapping.num_moved;
    mappings_.erase(found);
  }
  Unmap(begin, mapping);
}

std::map<const std::byte*, SharedMemory::Mapping>::const_iterator SharedMemory::Around(
    std::span<const std::byte> range) const {
  auto found = mappings_.upper_bound(range.data());
  if (found == mappings_.begin()) return mappings_.end();
  --found;
  const uint64_t offset = static_cast<uint64_t>(range.data() - found->first);
  const uint64_t capacity = found->second.capacity;
  return offset > capacity || range.size() > capacity - offset ? mappings_.end() : found;
}

std::optional<SharedMemory::Place> SharedMemory::Find(std::span<const std::byte> range) const {
  MutexLock lock(mutex_);
  const auto found = Around(range);
  if (found == mappings_.end()) return std::nullopt;
  return Place{found->second.fd, static_cast<uint64_t>(range.data() - found->first)};
}

bool SharedMemory::MayMove(std::span<const std::byte> to) {
  MutexLock lock(mutex_);
  const auto around = Around(to);
  if (around == mappings_.end() || around->second.use != Use::kOutput || num_moved_ >= kMaxMoved)
    return false;
  ++num_moved_;
  ++mappings_.find(around->first)->second.num_moved;
  return true;
}

absl::Status SharedMemory::Move(const Block& from, uint64_t offset, std::span<std::byte> to) {
  const std::span<const std::byte> bytes = from.bytes().subspan(offset, to.size());
  if (bytes.empty()) return absl::OkStatus();
  const uint64_t at = reinterpret_cast<uintptr_t>(to.data()) % kPageBytes;
  const uint64_t front = std::min<uint64_t>((kPageBytes - at) % kPageBytes, to.size());
  const uint64_t whole = (to.size() - front) / kPageBytes * kPageBytes;
  if (offset % kPageBytes != at || whole < kLeastMovedBytes || !MayMove(to)) {
    std::memcpy(to.data(), bytes.data(), to.size());
    return absl::OkStatus();
  }
  std::memcpy(to.data(), bytes.data(), front);
  const auto place = Find(bytes);
  if (mmap(to.data() + front, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, place->fd,
           static_cast<off_t>(place->offset + front)) == MAP_FAILED) {
    return NoMemory("mmap", whole);
  }
  std::memcpy(to.data() + front + whole, bytes.data() + front + whole, to.size() - front - whole);
  return absl::OkStatus();
}

}  // namespace evenkeel
