// Produces parts on a fixed number of threads within a budget of bytes, the lowest step first.
//
// Example:
//     PartPool pool({.num_threads = 8, .budget_bytes = 8ull << 30}, &metrics);
//     PartPool::Answer answer = pool.Request(std::move(task), listener);  // accepted, refused or ready
//     pool.Cancel(answer.ticket);  // work without a waiting request is dropped
//
// Order: the lowest step first, then the order of arrival. A thread that has finished a unit, or a series of
// short ones, takes the first part that has units left, so that several threads share a large part. Requests
// for the same part share one production, and ready parts are kept for a while for later requests.
//
// Memory: a request is accepted if its bytes fit into the budget in addition to everything accepted, in
// production, ready, or still referenced. The count is what parts occupy (ReadyPart::HeldBytes), not their
// payload alone. To make room the pool evicts ready parts without a request, then drops requests of higher
// steps that have not begun, the highest first: those can be produced again.
//
// Progress: listeners are called every `progress_interval`. `done` grows while the request's own units are
// worked on (measured by the CPU time of its threads), or, while it waits, while the worker does any work at
// all.
//
// Thread safety: all members may be called from many threads. Listeners are called from the pool's threads,
// without a lock of the pool; they must not block.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"
#include "core/mesh.h"
#include "core/part.h"
#include "isolation/shared_memory.h"
#include "server/kept_parts.h"
#include "server/memory_account.h"
#include "server/ready_part.h"
#include "stream/part_task.h"
#include "telemetry/metrics.h"

namespace evenkeel::server {

// The receiver of a request's events. At most one of OnReady, OnDropped and OnFailed is called, once. None is
// called after Cancel has returned, except a call that was already in progress, which may also be an
// OnProgress.
class PartListener {
 public:
  virtual ~PartListener() = default;
  virtual void OnProgress(std::string_view stage, uint64_t done, uint64_t total) = 0;
  virtual void OnReady(std::shared_ptr<const ReadyPart> part) = 0;
  // The request was accepted, but its memory is needed for a lower step.
  virtual void OnDropped(absl::Duration retry_after, const std::string& why) = 0;
  virtual void OnFailed(const absl::Status& status) = 0;
};

// The bytes of what a role receives of the task's part, where that is cut out of it; 0: the role receives the whole part.
uint64_t CutBytes(const stream::PartTask& task, PartRole role);

class PartPool {
 public:
  using Ticket = uint64_t;
  // Counting stops here, so that a request takes bounded time however many wait.
  static constexpr uint32_t kMaxQueueCounted = 256;

  struct Options {
    uint32_t num_threads = 1;
    uint64_t budget_bytes = 4ull << 30;
    uint64_t kept_bytes = 256ull << 20;  // ready parts that nobody waits for
    uint32_t max_requests = 4096;        // that wait
    absl::Duration progress_interval = absl::Seconds(1);
    isolation::SharedMemory* shared_memory = nullptr;  // for parts that decoder processes write into
    absl::Duration fault_unit_delay;  // for tests of overload: every unit takes at least this long
    uint32_t fault_fail_every = 0;    // for tests: every n-th unit fails its attempt
  };

  // The immediate answer to a request. Exactly one of: `ready` is set; `accepted`; refused (neither).
  struct Answer {
    std::shared_ptr<const ReadyPart> ready;
    bool accepted = false;
    Ticket ticket = 0;           // accepted
    uint32_t queue = 0;          // accepted: parts ahead of it, counted up to kMaxQueueCounted
    absl::Duration retry_after;  // refused
    std::string why;             // refused
  };

  struct Stats {
    telemetry::ByteGauges bytes;
    uint64_t queued = 0, producing = 0, ready = 0;  // parts
    uint64_t requests = 0;                          // that wait
    uint64_t parts_made = 0;
  };

  // `metrics` may be null and must outlive the pool.
  PartPool(const Options& options, telemetry::Metrics* metrics);
  // As Stop.
  ~PartPool();

  // FailedPrecondition if `task`, with `cut_bytes` for what a role receives of it, can never fit into the
  // budget; the message has both sizes and what to change.
  absl::Status CheckFits(const stream::PartTask& task, uint64_t cut_bytes = 0) const;

  // What a member with the role receives of a ready part, in memory for which room is made as for a request.
  // ResourceExhausted: the budget has no room for it now.
  absl::StatusOr<std::shared_ptr<const ReadyPart>> Cut(const ReadyPart& whole, PartRole role,
                                                       uint64_t num_bytes);

  Answer Request(std::unique_ptr<stream::PartTask> task, std::shared_ptr<PartListener> listener);
  // Does nothing if the ticket's request has ended.
  void Cancel(Ticket ticket);

  // Refuses new requests and waits until the accepted ones have ended. Returns false after `timeout`.
  bool Drain(absl::Duration timeout);
  // Ends the threads after their current units; requests left get OnFailed(Cancelled).
  void Stop();

  Stats stats() const;

 private:
  struct Production;
  using ProductionPtr = std::shared_ptr<Production>;
  // By step, then arrival.
  struct Earlier {
    bool operator()(const ProductionPtr& a, const ProductionPtr& b) const;
  };
  // Calls to listeners, made once the lock is released.
  using Calls = std::vector<std::function<void()>>;

  bool IsShared(const stream::PartTask& task) const;
  uint64_t CommittedBytes(const stream::PartTask& task) const;
  std::optional<Reservation> MakeRoom(uint64_t bytes, uint64_t step, Calls& calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(const ProductionPtr& production, Calls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer Refuse(std::string why) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Answer Join(const ProductionPtr& production, std::shared_ptr<PartListener> listener)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // What a thread does next. It is chosen under the lock and done without it.
  struct Turn {
    ProductionPtr production;
    size_t first_unit = 0;
    size_t num_units = 0;  // 0: the production begins
  };

  // One thread: takes a turn, does its work, ends the turn.
  void Run(size_t thread);
  // Waits for work; nullopt when the pool stops.
  std::optional<Turn> NextTurn(size_t thread) ABSL_LOCKS_EXCLUDED(mutex_);
  Turn TakeBegin(const ProductionPtr& production) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Turn TakeUnits(const ProductionPtr& production, size_t thread) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Number of units, starting with the next one, that one thread runs in a row.
  size_t UnitsAtOnce(const Production& production) const;
  absl::Status BeginPart(Production& production) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Moves the production's memory into its part. Throws std::bad_alloc.
  absl::Status MakePart(Production& production) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs the turn's units; stops at the first error.
  absl::Status RunUnits(const Turn& turn) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status RunGuarded(const ProductionPtr& production, size_t unit) ABSL_LOCKS_EXCLUDED(mutex_);
  // Records the outcome of a turn. Returns true when no work is left, exactly once for a production; then the
  // caller calls Finish.
  bool EndTurn(const Turn& turn, size_t thread, const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes the production's units available to all threads.
  void Offer(const ProductionPtr& production) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Hashes the part and hands it to its listeners.
  void Finish(const ProductionPtr& production) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndProduction(const ProductionPtr& production, Calls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void RunProgress();
  void Report(Calls& calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Make(Calls& calls);

  const Options options_;
  telemetry::Metrics* const metrics_;
  const std::shared_ptr<MemoryAccount> memory_;
  std::atomic<uint64_t> units_started_{0};

  mutable Mutex mutex_;
  CondVar work_;
  CondVar ended_;         // a request ended: for Drain
  CondVar stopping_now_;  // for the thread that reports progress
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t units_done_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t parts_made_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<PartName, ProductionPtr> productions_ ABSL_GUARDED_BY(mutex_);  // accepted and not ready
  std::set<ProductionPtr, Earlier> runnable_ ABSL_GUARDED_BY(mutex_);      // those with units left to take
  std::set<ProductionPtr, Earlier> queued_
      ABSL_GUARDED_BY(mutex_);  // the subset of runnable_ that has not begun
  std::map<Ticket, ProductionPtr> tickets_ ABSL_GUARDED_BY(mutex_);
  KeptParts kept_ ABSL_GUARDED_BY(mutex_);
  double bytes_per_second_ ABSL_GUARDED_BY(mutex_) = 100e6;  // recent throughput; for retry times only
  absl::Time last_made_ ABSL_GUARDED_BY(mutex_);

  std::vector<std::thread> threads_;
  std::thread progress_;
};

}  // namespace evenkeel::server
