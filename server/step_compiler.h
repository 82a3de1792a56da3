// Extends the sampler's table towards far steps, on a thread of its own, while they are requested.
//
// Example:
//     StepCompiler compiler([&](uint64_t step) { return sampler.Extend(step); });
//     absl::Status failed = compiler.Want(5'000'000);  // returns at once; repeat it to keep the work going
//
// Work on a step continues for `lease` after its last request, so that it ends when its callers are gone. The
// lowest step comes first; all steps share one table. It checks for Stop between two slices of about 0.2 s.
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"

namespace evenkeel::server {

class StepCompiler {
 public:
  // Does a bounded slice of work; returns true when the step is reached.
  using Extend = std::function<absl::StatusOr<bool>(uint64_t step)>;

  explicit StepCompiler(Extend extend, absl::Duration lease = absl::Seconds(10));
  // As Stop.
  ~StepCompiler() { Stop(); }

  // Starts or prolongs the work on a step. At most kMaxWanted steps; if there are more, the highest are
  // dropped. Returns the error that ended the work on this step since its last request, if any.
  absl::Status Want(uint64_t step);
  // Waits for the running slice; no work is done afterwards.
  void Stop();

 private:
  static constexpr size_t kMaxWanted = 64;
  struct Wanted {
    absl::Time until;
    absl::Status failed;  // not OK: the work has ended
  };

  void Run();
  // Waits for a wanted step; nullopt when the compiler stops.
  std::optional<uint64_t> TakeNext() ABSL_LOCKS_EXCLUDED(mutex_);
  // The outcome of one slice of work on `step`.
  void Record(uint64_t step, const absl::StatusOr<bool>& reached) ABSL_LOCKS_EXCLUDED(mutex_);
  // Drops steps whose lease has expired; returns the lowest step that is left to work on.
  std::map<uint64_t, Wanted>::iterator Next(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Extend extend_;
  const absl::Duration lease_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, Wanted> wanted_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_ ABSL_GUARDED_BY(mutex_);  // started by the first far step
};

}  // namespace evenkeel::server
