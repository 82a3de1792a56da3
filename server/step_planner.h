// Plans of steps for many threads: each computed once, cached within a budget, and the next steps planned
// ahead.
//
// Example:
//     StepPlanner planner(source, {.cache_bytes = 256 << 20, .steps_ahead = 4}, nullptr);
//     planner.Get(12, [](absl::StatusOr<StepPlanner::PlanPtr> plan) { /* on a thread of the planner */ });
//
// A plan that a request waits for comes before plans made ahead, and the lowest step before higher ones.
// Errors are passed to all waiting requests and are not cached.
//
// Thread safety: all members may be called from many threads. Callbacks run on the caller's thread if the
// plan is cached, else on a planning thread, without a lock of the planner; they must not block for long.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "core/annotated_mutex.h"
#include "stream/stream.h"
#include "telemetry/metrics.h"

namespace evenkeel::server {

class StepPlanner {
 public:
  using PlanPtr = std::shared_ptr<const stream::StepPlan>;
  using Ready = std::function<void(absl::StatusOr<PlanPtr>)>;
  // A pure function; called from several threads at once for different steps.
  using Source = std::function<absl::StatusOr<stream::StepPlan>(uint64_t step)>;

  struct Options {
    uint64_t cache_bytes = 256ull << 20;  // the latest plan is kept whatever its size
    // Consumers are within a few steps of one another, and a plan takes milliseconds to compute. Without this
    // bound, small plans would fill cache_bytes over hours, although they are never requested again.
    uint32_t max_plans = 128;  // plus twice steps_ahead
    uint32_t steps_ahead = 4;
    uint32_t num_threads = 1;
    uint32_t max_waiting = 4096;  // callbacks
  };

  // `metrics` may be null.
  StepPlanner(Source source, Options options, telemetry::Metrics* metrics);
  // As Stop.
  ~StepPlanner() { Stop(); }

  // Passes Cancelled to all waiting requests at once, and to all later ones; then waits for the plan that is
  // being computed.
  void Stop();

  // Calls `ready` once. ResourceExhausted: too many requests wait; Cancelled: the planner is stopping; else
  // the source's errors.
  void Get(uint64_t step, Ready ready);
  // As Get, but blocks until the plan is there. Must not be called from a callback.
  absl::StatusOr<PlanPtr> Wait(uint64_t step);

  uint64_t cached_bytes() const;
  uint64_t num_computed() const;

 private:
  struct Kept {
    PlanPtr plan;
    uint64_t bytes = 0;
    std::list<uint64_t>::iterator recent;
  };

  void Run();
  // The step to compute next; removes it from the queues.
  uint64_t TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PlanPtr Find(uint64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(uint64_t step, PlanPtr plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PlanAhead(uint64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReportNew(const stream::StepPlan& plan, absl::Duration duration);

  const Source source_;
  const Options options_;
  telemetry::Metrics* const metrics_;

  mutable Mutex mutex_;
  CondVar work_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, std::vector<Ready>> waiting_ ABSL_GUARDED_BY(mutex_);  // queued or being computed
  size_t num_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<uint64_t> wanted_ ABSL_GUARDED_BY(mutex_);  // not begun, a request waits
  std::set<uint64_t> ahead_ ABSL_GUARDED_BY(mutex_);   // not begun, no request waits
  std::set<uint64_t> running_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Kept> kept_ ABSL_GUARDED_BY(mutex_);
  std::list<uint64_t> recent_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  uint64_t kept_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_computed_ ABSL_GUARDED_BY(mutex_) = 0;

  std::vector<std::thread> threads_;
};

}  // namespace evenkeel::server
