// Implements loans: every slice owns a reference to its loan, and gRPC calls Release on some thread when it
// is done with a slice.
#include "transport/loan.h"

#include <utility>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace evenkeel::transport {
namespace {

// gRPC's locks order Lend before Release. Debian's gRPC is not instrumented, so ThreadSanitizer sees that
// order only if it is stated here.
void StateLent([[maybe_unused]] void* reference) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(reference);
#endif
}

void StateReturned([[maybe_unused]] void* reference) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(reference);
#endif
}

void Release(void* reference) {
  StateReturned(reference);
  const std::unique_ptr<std::shared_ptr<Loan>> owned(static_cast<std::shared_ptr<Loan>*>(reference));
}

}  // namespace

bool Lender::WaitUntilFree(Clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (!loans_.empty()) {
    const Clock::duration left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) return false;
    changed_.WaitFor(mutex_, absl::FromChrono(left));
  }
  return true;
}

bool Lender::free() {
  MutexLock lock(mutex_);
  return loans_.empty();
}

size_t Lender::Abandon() {
  MutexLock lock(mutex_);
  size_t abandoned = 0;
  for (auto it = loans_.begin(); it != loans_.end();) {
    Loan& loan = **it;
    if (!loan.ended_) {
      ++it;
      continue;
    }
    ++abandoned;
    // Leaked on purpose: the callback may own the buffer, which gRPC or the card may still read.
    Done* const kept = std::make_unique<Done>(std::exchange(loan.done_, nullptr)).release();
    tasks_->Post([kept, status = loan.status_] { (*kept)(status); });
    it = loans_.erase(it);
  }
  changed_.NotifyAll();
  return abandoned;
}

Loan::Loan(std::shared_ptr<Lender> lender, Done done) : lender_(std::move(lender)), done_(std::move(done)) {
  MutexLock lock(lender_->mutex_);
  lender_->loans_.insert(this);
}

Loan::~Loan() {
  MutexLock lock(lender_->mutex_);
  if (done_ == nullptr) return;  // the loan was abandoned
  lender_->tasks_->Post([done = std::move(done_), status = std::move(status_)] { done(status); });
  lender_->loans_.erase(this);
  lender_->changed_.NotifyAll();
}

grpc::Slice Loan::Lend(const std::shared_ptr<Loan>& loan, std::span<const std::byte> bytes) {
  void* const reference = std::make_unique<std::shared_ptr<Loan>>(loan).release();
  StateLent(reference);
  // gRPC only reads the bytes, but its interface takes a mutable pointer.
  return grpc::Slice(const_cast<std::byte*>(bytes.data()), bytes.size(), Release, reference);
}

void Loan::End(absl::Status status) {
  MutexLock lock(lender_->mutex_);
  if (std::exchange(ended_, true)) return;
  status_ = std::move(status);
}

}  // namespace evenkeel::transport
