// Memory that a caller lends to gRPC, which reads it on its own threads until it releases it.
//
// Example:
//     auto loan = std::make_shared<Loan>(lender, std::move(done));
//     grpc::Slice slice = Loan::Lend(loan, bytes);  // as often as needed
//     loan->End(status);
//     loan.reset();
//
// `done(status)` is posted when the last reference is gone: the caller's and those of all slices. So the
// owner keeps the bytes as long as gRPC may read them. gRPC releases a slice after writing it, or when its
// stream or connection ends.
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <grpcpp/support/slice.h>

#include <cstddef>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "absl/status/status.h"
#include "core/annotated_mutex.h"
#include "transport/task_thread.h"
#include "transport/transport.h"

namespace evenkeel::transport {

class Loan;

// Counts the loans of one session, and ends those that gRPC does not release. Outlives its loans.
class Lender {
 public:
  explicit Lender(TaskThread* tasks) : tasks_(tasks) {}
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // Waits until no loan is left, at most until `deadline`; returns whether none is. Must not be called from a
  // task.
  bool WaitUntilFree(Clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  bool free() ABSL_LOCKS_EXCLUDED(mutex_);
  // Posts the `done` of every loan that was ended, with its status, and never destroys it, so that the memory
  // it owns stays readable. Returns their number.
  size_t Abandon() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class Loan;

  TaskThread* const tasks_;  // unused if no loan has a `done`
  Mutex mutex_;
  CondVar changed_;
  std::unordered_set<Loan*> loans_ ABSL_GUARDED_BY(mutex_);
};

class Loan {
 public:
  Loan(std::shared_ptr<Lender> lender, Done done);
  ~Loan();
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  static grpc::Slice Lend(const std::shared_ptr<Loan>& loan, std::span<const std::byte> bytes);
  // Sets the status that `done` is called with. The first call counts.
  void End(absl::Status status);

 private:
  friend class Lender;

  const std::shared_ptr<Lender> lender_;
  // Guarded by the lender's mutex.
  Done done_;  // null after it was posted
  absl::Status status_;
  bool ended_ = false;
};

}  // namespace evenkeel::transport
