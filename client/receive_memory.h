// Receive memory: one arena, mapped once, from which buffers for parts are taken and to which they return.
//
// What it is: an accountant in bytes. Memory that was handed to the trainer is counted apart from memory that
// is being filled, because the trainer decides how long it keeps a step and must not starve the next one.
// What it is not: a queue. Who asks first is decided by the caller (in step order).
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<ReceiveMemory> memory, ReceiveMemory::Create(1 << 30));
//     std::optional<ReceiveBuffer> buffer = memory->TryTake(num_bytes, /*head=*/false);
//     if (buffer) Fill(buffer->bytes());
//
// Grants:
//   prefetch  all bytes in use, the trainer's included, stay within the budget
//   head      bytes in use without the trainer's stay within the budget; if the arena has no room because the
//             trainer holds it, the buffer is mapped in addition to it. So memory is bounded by the budget
//             plus what the trainer holds on to.
//
// Thread safety: all members may be called from many threads. Buffers keep the memory alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "core/annotated_mutex.h"

namespace evenkeel::client {

class ReceiveMemory;

// Owns a stretch of receive memory, aligned to 4096. Movable; gives it back when destroyed, from any thread.
class ReceiveBuffer {
 public:
  ReceiveBuffer() = default;
  ReceiveBuffer(ReceiveBuffer&& other) noexcept { *this = std::move(other); }
  ReceiveBuffer& operator=(ReceiveBuffer&& other) noexcept;
  ~ReceiveBuffer() { Release(); }

  std::span<std::byte> bytes() const { return bytes_; }
  // From here on the trainer's.
  void MarkDelivered();
  void Release();

 private:
  friend class ReceiveMemory;
  std::shared_ptr<ReceiveMemory> memory_;
  std::span<std::byte> bytes_;   // as asked for
  uint64_t reserved_bytes_ = 0;  // rounded up
  bool delivered_ = false;
};

class ReceiveMemory : public std::enable_shared_from_this<ReceiveMemory> {
 public:
  // ResourceExhausted: the address space has no room for the budget.
  static absl::StatusOr<std::shared_ptr<ReceiveMemory>> Create(uint64_t budget_bytes);
  ~ReceiveMemory();
  ReceiveMemory(const ReceiveMemory&) = delete;
  ReceiveMemory& operator=(const ReceiveMemory&) = delete;

  // Empty where the budget has no room now.
  std::optional<ReceiveBuffer> TryTake(uint64_t bytes, bool head);
  // Whether a buffer of this size could ever be granted.
  bool CanHold(uint64_t bytes) const { return RoundUp(bytes) <= budget_bytes_; }
  // What a buffer of this size takes of the budget: whole pages.
  static uint64_t RoundUp(uint64_t bytes);

  // Called (from any thread, without locks held) after memory came back. Null ends it: no call runs
  // afterwards.
  void OnFreed(std::function<void()> callback);

  std::span<std::byte> arena() const { return arena_; }
  uint64_t budget_bytes() const { return budget_bytes_; }
  uint64_t bytes_in_use() const;
  uint64_t bytes_delivered() const;

 private:
  friend class ReceiveBuffer;
  ReceiveMemory(uint64_t budget_bytes, std::span<std::byte> arena);

  std::byte* TakeFromArena(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReturnToArena(uint64_t offset, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Return(std::span<std::byte> bytes, uint64_t reserved_bytes, bool delivered);
  void Deliver(uint64_t reserved_bytes);
  bool InArena(const std::byte* data) const;

  const uint64_t budget_bytes_;
  const std::span<std::byte> arena_;

  mutable Mutex mutex_;
  std::map<uint64_t, uint64_t> free_ ABSL_GUARDED_BY(mutex_);  // offset -> bytes, neighbours merged
  uint64_t in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t delivered_ ABSL_GUARDED_BY(mutex_) = 0;

  Mutex callback_mutex_;  // never held together with mutex_
  std::function<void()> freed_ ABSL_GUARDED_BY(callback_mutex_);
};

}  // namespace evenkeel::client
