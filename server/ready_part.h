// A part that is ready: its bytes and their hash.
//
// Ownership: its memory counts against the worker's budget until the last owner lets go.
// Thread safety: the pool writes it on its own threads; from OnReady on it is constant.
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
  // `shared`: where decoder processes write into the part; none: ordinary memory.
  ReadyPart(PartName name, uint64_t num_bytes, Reservation memory, isolation::SharedMemory::Block shared);

  // Memory that a part of `num_bytes` takes: what the allocator rounds up to and keeps for itself included,
  // and the part's own record. Known before it is made, so that a budget can be asked for it. `is_shared`: in
  // shared memory.
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
  // One of the two.
  const isolation::SharedMemory::Block shared_;
  const std::unique_ptr<std::byte[], Free> own_;
  std::byte* const begin_;  // in one of them, a multiple of kPartAlignment
  Digest hash_;
  Reservation memory_;
};

}  // namespace evenkeel::server
