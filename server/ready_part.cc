// Allocates a part's memory, and computes what it really occupies.
#include "server/ready_part.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

namespace evenkeel::server {
namespace {

// What a block takes in addition to its bytes: malloc's header, and the padding for the alignment.
constexpr uint64_t kBlockOverhead = 16 + kPartAlignment;
// Above this size malloc may map the block separately, in whole pages.
constexpr uint64_t kMappedBytes = 128 << 10;
// The object, its reference counts, and its entries in the pool's tables.
constexpr uint64_t kRecordBytes = 384;

// Not aligned_alloc: glibc up to 2.37 cuts an aligned block out of a larger one, so a freed block is too
// small for the next part of the same size, and the heap grows to twice the memory in use.
std::byte* Allocate(uint64_t num_bytes) {
  void* memory = std::malloc(AlignPart(num_bytes) + kPartAlignment);
  if (memory == nullptr) throw std::bad_alloc();
  return static_cast<std::byte*>(memory);
}

std::byte* Align(std::byte* block) {
  return reinterpret_cast<std::byte*>(AlignPart(reinterpret_cast<uintptr_t>(block)));
}

}  // namespace

uint64_t ReadyPart::HeldBytes(uint64_t num_bytes, bool is_shared) {
  if (is_shared) return isolation::RoundUpToPage(num_bytes) + kRecordBytes;
  const uint64_t block = AlignPart(num_bytes) + kBlockOverhead;
  return (block < kMappedBytes ? block : isolation::RoundUpToPage(block)) + kRecordBytes;
}

void ReadyPart::Free::operator()(std::byte* bytes) const { std::free(bytes); }

ReadyPart::ReadyPart(PartName name, uint64_t num_bytes, Reservation memory,
                     isolation::SharedMemory::Block shared)
    : name_(name),
      num_bytes_(num_bytes),
      shared_(std::move(shared)),
      own_(shared_.bytes().empty() ? Allocate(num_bytes) : nullptr),
      begin_(own_ != nullptr ? Align(own_.get()) : shared_.bytes().data()),
      memory_(std::move(memory)) {}

}  // namespace evenkeel::server
