// How long the trainer has waited for steps, and how much of that was reported to workers.
//
// Each second is reported to exactly one worker, so that the sum over all workers is the consumer's wait.
//
// Thread safety: none; the fetch loop owns it under its mutex.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace evenkeel::client {

class TrainerWait {
 public:
  void Begin(absl::Time now) { began_ = now; }
  void End(absl::Time now) {
    seconds_ = Seconds(now);
    began_ = absl::InfiniteFuture();
  }
  // All waits so far, including one in progress.
  double Seconds(absl::Time now) const {
    return seconds_ + std::max(0.0, absl::ToDoubleSeconds(now - std::min(now, began_)));
  }
  double Unreported(absl::Time now) const { return std::max(0.0, Seconds(now) - reported_); }
  // The seconds not reported so far; they count as reported from now on.
  double Report(absl::Time now) {
    const double seconds = Unreported(now);
    reported_ += seconds;
    return seconds;
  }

 private:
  double seconds_ = 0;  // of finished waits
  absl::Time began_ = absl::InfiniteFuture();
  double reported_ = 0;
};

}  // namespace evenkeel::client
