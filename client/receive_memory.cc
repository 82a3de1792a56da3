// Maps the arena, grants buffers from it by first fit, and accounts for what the trainer still holds.
#include "client/receive_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "core/status.h"

namespace evenkeel::client {
namespace {

constexpr uint64_t kPage = 4096;

// The kernel provides pages when they are first written. They are never returned to it: first fit reuses low
// addresses, so that most buffers are in memory that is already mapped and warm.
// `at`: replaces the pages there; null: anywhere.
std::byte* MapPages(uint64_t bytes, std::byte* at = nullptr) {
  void* data = mmap(at, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at == nullptr ? 0 : MAP_FIXED), -1, 0);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, bytes, MADV_HUGEPAGE);  // fewer page faults; only a hint, so a failure is ignored
  return static_cast<std::byte*>(data);
}

}  // namespace

ReceiveBuffer& ReceiveBuffer::operator=(ReceiveBuffer&& other) noexcept {
  if (this == &other) return *this;
  Release();
  memory_ = std::move(other.memory_);
  bytes_ = std::exchange(other.bytes_, {});
  reserved_bytes_ = std::exchange(other.reserved_bytes_, 0);
  delivered_ = std::exchange(other.delivered_, false);
  replaced_ = std::exchange(other.replaced_, false);
  return *this;
}

void ReceiveBuffer::MarkDelivered() {
  if (memory_ == nullptr || delivered_) return;
  delivered_ = true;
  memory_->Deliver(reserved_bytes_);
}

void ReceiveBuffer::Release() {
  if (memory_ == nullptr) return;
  std::shared_ptr<ReceiveMemory> memory = std::move(memory_);
  memory->Return(std::exchange(bytes_, {}), reserved_bytes_, delivered_, replaced_);
}

absl::StatusOr<std::shared_ptr<ReceiveMemory>> ReceiveMemory::Create(uint64_t budget_bytes) {
  uint64_t bytes = RoundUp(budget_bytes);
  std::byte* data = MapPages(bytes);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map ", bytes, " bytes of receive memory; lower prefetch_bytes"));
  }
  return std::shared_ptr<ReceiveMemory>(new ReceiveMemory(bytes, {data, bytes}));
}

ReceiveMemory::ReceiveMemory(uint64_t budget_bytes, std::span<std::byte> arena)
    : budget_bytes_(budget_bytes), arena_(arena) {
  free_[0] = budget_bytes;
}

ReceiveMemory::~ReceiveMemory() { munmap(arena_.data(), arena_.size()); }

uint64_t ReceiveMemory::RoundUp(uint64_t bytes) {
  bytes = std::clamp<uint64_t>(bytes, 1, UINT64_MAX - kPage);
  return (bytes + kPage - 1) / kPage * kPage;
}

std::optional<ReceiveBuffer> ReceiveMemory::TryTake(uint64_t bytes, bool head) {
  uint64_t reserved = RoundUp(bytes);
  ReceiveBuffer buffer;
  {
    MutexLock lock(mutex_);
    // The head step does not count what the trainer holds, so that it always gets memory in the end.
    uint64_t counted = head ? in_use_ - delivered_ : in_use_;
    if (reserved > budget_bytes_ || counted > budget_bytes_ - reserved) return std::nullopt;
    std::byte* data = TakeFromArena(reserved);
    if (data == nullptr && head) data = MapPages(reserved);
    if (data == nullptr) return std::nullopt;
    in_use_ += reserved;
    buffer.bytes_ = {data, bytes};
  }
  buffer.reserved_bytes_ = reserved;
  buffer.memory_ = shared_from_this();
  return buffer;
}

std::byte* ReceiveMemory::TakeFromArena(uint64_t bytes) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    auto [offset, size] = *it;
    if (size < bytes) continue;
    free_.erase(it);
    if (size > bytes) free_[offset + bytes] = size - bytes;
    return arena_.data() + offset;
  }
  return nullptr;
}

void ReceiveMemory::ReturnToArena(uint64_t offset, uint64_t bytes) {
  // Merges the range with its free neighbours, so that `free_` never has two adjacent ranges.
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

bool ReceiveMemory::InArena(const std::byte* data) const {
  return data >= arena_.data() && data < arena_.data() + arena_.size();
}

void ReceiveMemory::Return(std::span<std::byte> bytes, uint64_t reserved_bytes, bool delivered,
                           bool replaced) {
  // Buffers of the head step may have pages of their own, which go back to the kernel.
  bool in_arena = InArena(bytes.data());
  if (!in_arena) munmap(bytes.data(), reserved_bytes);
  // If this fails, the sender's pages stay until the range is used again; they can be written like any other.
  if (in_arena && replaced) MapPages(reserved_bytes, bytes.data());
  {
    MutexLock lock(mutex_);
    if (in_arena) ReturnToArena(static_cast<uint64_t>(bytes.data() - arena_.data()), reserved_bytes);
    in_use_ -= reserved_bytes;
    if (delivered) delivered_ -= reserved_bytes;
  }
  MutexLock lock(callback_mutex_);
  if (freed_) freed_();
}

void ReceiveMemory::Deliver(uint64_t reserved_bytes) {
  MutexLock lock(mutex_);
  delivered_ += reserved_bytes;
}

void ReceiveMemory::OnFreed(std::function<void()> callback) {
  MutexLock lock(callback_mutex_);
  freed_ = std::move(callback);
}

uint64_t ReceiveMemory::bytes_in_use() const {
  MutexLock lock(mutex_);
  return in_use_;
}

uint64_t ReceiveMemory::bytes_delivered() const {
  MutexLock lock(mutex_);
  return delivered_;
}

}  // namespace evenkeel::client
