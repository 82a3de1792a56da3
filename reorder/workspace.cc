#include "reorder/workspace.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace evenkeel::reorder {

void ExpectWrites(const void* data, size_t bytes) {
#ifdef __linux__
  // Whole small pages, those that it shares with others too: where a large page begins, an allocator often
  // has a few bytes of its own.
  constexpr uintptr_t kPage = 4096;
  constexpr size_t kFew = 16;  // small pages that are not worth a call
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data) / kPage * kPage;
  const uintptr_t end = RoundUp(reinterpret_cast<uintptr_t>(data) + bytes, kPage);
  if (bytes < kFew * kPage) return;
  // A large page is cleared whole: the last one is not worth it where much of it would not be written.
  constexpr size_t kNearlyWhole = kLargePage / 8 * 7;
  const uintptr_t last = end / kLargePage * kLargePage;
  const uintptr_t small = bytes < kLargePage ? begin : end - last < kNearlyWhole ? last : end;
  if (begin < small) {
    madvise(reinterpret_cast<void*>(begin), small - begin, MADV_HUGEPAGE);  // refused: small pages as before
    // What an allocator wrote in front has made the first one small already.
    constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, which older headers do not name
    if (begin % kLargePage == 0) madvise(reinterpret_cast<void*>(begin), kLargePage, kCollapse);
  }
  constexpr int kPopulate = 23;  // MADV_POPULATE_WRITE of Linux 5.14, which older headers do not name
  if (small < end) madvise(reinterpret_cast<void*>(small), end - small, kPopulate);
#else
  (void)data, (void)bytes;
#endif
}

void* Workspace::Allocate(size_t bytes) {
  bytes = RoundUp(bytes, kAlignment);
#ifdef EVENKEEL_SANITIZED
  AddPiece(bytes);  // each array by itself, so that what is written past its end is found
  piece_ = pieces_.size();
  return pieces_.back().data.get();
#endif
  while (piece_ < pieces_.size() && pieces_[piece_].size - used_ < bytes) ++piece_, used_ = 0;
  if (piece_ == pieces_.size()) AddPiece(std::max(bytes, pieces_.empty() ? expected_ : expected_ / 4));
  void* const data = pieces_[piece_].data.get() + used_;
  used_ += bytes;
  return data;
}

void Workspace::AddPiece(size_t bytes) {
  const size_t alignment = bytes < kLargePage ? kAlignment : kLargePage;
  const size_t size = RoundUp(std::max(bytes, kAlignment), alignment);
  std::unique_ptr<std::byte, Release> data(
      static_cast<std::byte*>(::operator new (size, std::align_val_t{alignment})), Release{alignment});
  if (size >= kLargePage) ExpectWrites(data.get(), size);  // of little, not all may be taken
  pieces_.push_back({std::move(data), size});
}

void Workspace::ReturnTo(size_t piece, size_t used) {
  piece_ = piece, used_ = used;
#ifdef EVENKEEL_SANITIZED
  pieces_.resize(piece);
#endif
}

}  // namespace evenkeel::reorder
