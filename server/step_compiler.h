// Extends the sampler's table towards far steps, on a thread of its own, while somebody asks for them.
//
// Example:
//     StepCompiler compiler([&](uint64_t step) { return sampler.Extend(step); });
//     absl::Status failed = compiler.Want(5'000'000);  // at once; asked again, it goes on
//
// A step is worked on for `lease` after it was last asked for, so that work ends with its callers. The lowest
// step comes first; all share one table. Between two slices, about 0.2 s, it looks for the end.
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
  // A bounded slice of work; true when the step is reached.
  using Extend = std::function<absl::StatusOr<bool>(uint64_t step)>;

  explicit StepCompiler(Extend extend, absl::Duration lease = absl::Seconds(10));
  // As Stop.
  ~StepCompiler() { Stop(); }

  // Starts or prolongs the work on a step. At most kMaxWanted steps; of more, the highest are forgotten.
  // Returns the error, if any, that ended the work on this step since it was last asked for.
  absl::Status Want(uint64_t step);
  // Waits for the slice that is running. Nothing is worked on afterwards.
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
  // Drops what nobody asks for any more; the lowest step that is left to work on.
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
