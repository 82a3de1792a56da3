// Adds and subtracts bytes against a budget, under a lock.
#include "server/memory_account.h"

namespace evenkeel::server {

Reservation::~Reservation() {
  if (account_ != nullptr) account_->Release(bytes_);
}

void Reservation::ShrinkTo(uint64_t bytes) {
  if (account_ == nullptr || bytes >= bytes_) return;
  account_->Release(bytes_ - bytes);
  bytes_ = bytes;
}

std::optional<Reservation> MemoryAccount::TryReserve(uint64_t bytes) {
  MutexLock lock(mutex_);
  if (bytes > budget_bytes_ - used_bytes_) return std::nullopt;
  used_bytes_ += bytes;
  return Reservation(shared_from_this(), bytes);
}

uint64_t MemoryAccount::used_bytes() const {
  MutexLock lock(mutex_);
  return used_bytes_;
}

void MemoryAccount::Release(uint64_t bytes) {
  MutexLock lock(mutex_);
  used_bytes_ -= bytes;
}

}  // namespace evenkeel::server
