// A finished part: its bytes and their hash.
//
// Ownership: its memory counts against the worker's budget until its last owner is gone. Thread safety: the
// pool's threads write it; from OnReady on it is constant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/digest.h"
#include "core/part.h"
#include "isolation/shared_memory.h"
#include "server/memory_account.h"

namespace evenkeel::server {

class ReadyPart {
 public:
  // `shared`: shared memory that decoder processes write into; empty: ordinary memory.
  ReadyPart(PartName name, uint64_t num_bytes, Reservation memory, isolation::SharedMemory::Block shared);

  // The memory that a part of `num_bytes` occupies, including what the allocator rounds up to and keeps for
  // itself, and the part's own record. Known in advance, so that the budget can be asked for it. `is_shared`:
  // in shared memory.
  static uint64_t HeldBytes(uint64_t num_bytes, bool is_shared);

  const PartName& name() const { return name_; }
  uint64_t held_bytes() const { return HeldBytes(num_bytes_, own_ == nullptr); }
  std::span<const std::byte> bytes() const { return {begin_, num_bytes_}; }
  const Digest& hash() const { return hash_; }

 private:
  friend class PartPool;
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  std::span<std::byte> writable() { return {begin_, num_bytes_}; }

  const PartName name_;
  const uint64_t num_bytes_;
  // Exactly one of the two holds the bytes.
  const isolation::SharedMemory::Block shared_;
  const std::unique_ptr<std::byte[], Free> own_;
  std::byte* const begin_;  // the first byte, aligned to kPartAlignment
  Digest hash_;
  Reservation memory_;
};

}  // namespace evenkeel::server
