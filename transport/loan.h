// Memory of a caller that is lent to gRPC, which reads it on its own threads until it lets go of it.
//
// Example:
//     auto loan = std::make_shared<Loan>(lender, std::move(done));
//     grpc::Slice slice = Loan::Lend(loan, bytes);  // as often as needed
//     loan->End(status);
//     loan.reset();
//
// `done(status)` is posted when the last reference is gone: the caller's and those of all slices. So while
// gRPC may read the bytes their owner keeps them. gRPC lets go of a slice when it has written it, or when its
// stream or connection ended.
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

// Counts the loans of one session, and ends those that gRPC does not let go of. Outlives its loans.
class Lender {
 public:
  explicit Lender(TaskThread* tasks) : tasks_(tasks) {}
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // True when no loan is left, at `deadline` at the latest. Not from a task.
  bool WaitUntilFree(Clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  bool free() ABSL_LOCKS_EXCLUDED(mutex_);
  // Posts the `done` of every loan that was ended, with its status, and never destroys it: what it owns stays
  // readable. Returns how many.
  size_t Abandon() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class Loan;

  TaskThread* const tasks_;  // not used when no loan has a `done`
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
  // What `done` will be called with. The first call counts.
  void End(absl::Status status);

 private:
  friend class Lender;

  const std::shared_ptr<Lender> lender_;
  // Under the lender's mutex.
  Done done_;  // null: was posted
  absl::Status status_;
  bool ended_ = false;
};

}  // namespace evenkeel::transport
