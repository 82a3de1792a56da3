// Receive memory: one arena, mapped once; parts take buffers from it and return them.
//
// It accounts in bytes. Memory handed to the trainer is counted separately from memory being filled, because
// the trainer decides how long it keeps a step, and must not starve the next one. It is not a queue: the
// caller decides the order of grants (step order).
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<ReceiveMemory> memory, ReceiveMemory::Create(1 << 30));
//     std::optional<ReceiveBuffer> buffer = memory->TryTake(num_bytes, /*head=*/false);
//     if (buffer) Fill(buffer->bytes());
//
// Grants:
//   prefetch  all bytes in use, including the trainer's, stay within the budget
//   head      bytes in use without the trainer's stay within the budget; if the arena is full because the
//             trainer holds it, the buffer gets pages of its own. So memory is bounded by the budget plus
//             what the trainer holds.
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

// Owns a range of receive memory, aligned to 4096 bytes. Movable; returns the range when destroyed, from any
// thread.
class ReceiveBuffer {
 public:
  ReceiveBuffer() = default;
  ReceiveBuffer(ReceiveBuffer&& other) noexcept { *this = std::move(other); }
  ReceiveBuffer& operator=(ReceiveBuffer&& other) noexcept;
  ~ReceiveBuffer() { Release(); }

  std::span<std::byte> bytes() const { return bytes_; }
  // The trainer owns the bytes from now on.
  void MarkDelivered();
  // A transport may map a sender's pages here (transport/transport.h: RegisterMemory). They are given back when
  // the range is returned.
  void MarkReplaced() { replaced_ = true; }
  void Release();

 private:
  friend class ReceiveMemory;
  std::shared_ptr<ReceiveMemory> memory_;
  std::span<std::byte> bytes_;   // the requested size
  uint64_t reserved_bytes_ = 0;  // rounded up
  bool delivered_ = false;
  bool replaced_ = false;
};

class ReceiveMemory : public std::enable_shared_from_this<ReceiveMemory> {
 public:
  // ResourceExhausted: the address space has no room for the budget.
  static absl::StatusOr<std::shared_ptr<ReceiveMemory>> Create(uint64_t budget_bytes);
  ~ReceiveMemory();
  ReceiveMemory(const ReceiveMemory&) = delete;
  ReceiveMemory& operator=(const ReceiveMemory&) = delete;

  // Never blocks; nullopt if the budget has no room now.
  std::optional<ReceiveBuffer> TryTake(uint64_t bytes, bool head);
  // True if a buffer of this size could ever be granted.
  bool CanHold(uint64_t bytes) const { return RoundUp(bytes) <= budget_bytes_; }
  // What a buffer of this size takes of the budget, in bytes: whole pages.
  static uint64_t RoundUp(uint64_t bytes);

  // `callback` runs after memory was returned, on the returning thread, without the arena's lock. Null
  // removes it: no call runs after that returns.
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
  void Return(std::span<std::byte> bytes, uint64_t reserved_bytes, bool delivered, bool replaced);
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
