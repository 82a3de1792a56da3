// Accounts for committed memory in bytes, against a budget. TryReserve never blocks; it returns nullopt when
// the budget is used up.
//
// Example:
//     std::optional<Reservation> memory = account->TryReserve(1 << 20);  // freed by its destructor
//
// Ownership: reservations keep their account alive. Thread safety: an account may be used from many threads;
// a Reservation from one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "core/annotated_mutex.h"

namespace evenkeel::server {

class MemoryAccount;

class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept
      : account_(std::move(other.account_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Reservation();

  uint64_t bytes() const { return bytes_; }
  // Releases what exceeds `bytes`.
  void ShrinkTo(uint64_t bytes);

 private:
  friend class MemoryAccount;
  Reservation(std::shared_ptr<MemoryAccount> account, uint64_t bytes)
      : account_(std::move(account)), bytes_(bytes) {}

  std::shared_ptr<MemoryAccount> account_;
  uint64_t bytes_ = 0;
};

class MemoryAccount : public std::enable_shared_from_this<MemoryAccount> {
 public:
  explicit MemoryAccount(uint64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  std::optional<Reservation> TryReserve(uint64_t bytes);
  uint64_t used_bytes() const;
  uint64_t budget_bytes() const { return budget_bytes_; }

 private:
  friend class Reservation;
  void Release(uint64_t bytes);

  const uint64_t budget_bytes_;
  mutable Mutex mutex_;
  uint64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace evenkeel::server
