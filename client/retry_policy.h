// When and how often the consumer retries: every pause, every budget and the share of duplicates.
//
// Decisions only, as functions of counts; WorkerTable chooses whom to ask, PartFetch and StepFetch record
// what happened. Pauses double with each consecutive failure up to a maximum. The fetch loop multiplies them
// by a random factor, so that the ranks of a run do not retry in unison.
//
// Thread safety: functions without state; Jitter belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace evenkeel::client {

// ---- Budgets

inline constexpr size_t kMaxCopies = 2;           // of one part, at the same time
inline constexpr size_t kDistinctWorkers = 3;     // failures on this many workers mean bad data
inline constexpr size_t kMaxFailedAttempts = 12;  // the same, if three distinct workers are never reached
inline constexpr size_t kMaxDamagedArrivals = 6;  // wrong hashes of one part

// Copies in flight over all workers. The last quarter is reserved for the head step.
size_t MaxInFlight(bool is_head);

// True while one more duplicate request keeps duplicates within 5 % of all requests.
bool MayDuplicate(uint64_t duplicates, uint64_t requests);

// True if failures are attributed to the data rather than to workers: attempts failed on kDistinctWorkers of
// them, or kDistinctWorkers attempts if fewer workers are listed (`num_workers`).
bool DataIsAtFault(size_t failures, size_t distinct_workers, size_t num_workers);

// ---- Pauses of a worker, before another session is opened

struct Backoff {
  absl::Duration among_others;
  absl::Duration alone;  // if no other worker is ready: short, to find a restarted worker soon
};
// The worker was lost or cannot be reached; `failures`: consecutive ones before this one.
Backoff AfterLoss(int failures);
// The worker ended an idle session or was restarted, which is not its failure.
Backoff AfterEndOfSession(int failures);

inline constexpr absl::Duration kRejectedFor = absl::Seconds(30);  // the worker serves another stream
// How long a worker without progress is asked last. `stalls`: consecutive ones before this one.
absl::Duration GreyTime(absl::Duration first, int stalls, absl::Duration max);
// How long to wait for a worker on trial: `first` after its first stall, doubled with each further one, so
// that a worker that is only slow finishes a request eventually.
absl::Duration TrialPatience(absl::Duration first, int stalls, absl::Duration max);

// ---- Pauses of a part

// An attempt failed. `failures`: including this one.
absl::Duration AfterFailure(size_t failures);
// The worker's machine failed; pauses that worker alone. `times`: before this failure.
absl::Duration AfterTrouble(size_t times);
// The worker refused the request and gave a retry time, which is clamped to 10 ms (also for NaN) .. 30 s.
absl::Duration AfterRefusal(double retry_after_seconds);

inline constexpr double kRefusedStreamSeconds = 0.2;  // refused by the RPC's status, which gives no time
inline constexpr absl::Duration kAfterDamage = absl::Seconds(2);  // for the worker that sent it

// ---- Pauses of a step's description

inline constexpr absl::Duration kAfterDescribeFailed = absl::Milliseconds(50);
inline constexpr absl::Duration kAvoidAfterDescribeFailed = absl::Seconds(1);  // the worker that failed
inline constexpr absl::Duration kAfterDescribeNotYet = absl::Milliseconds(400);
inline constexpr absl::Duration kAfterDescribeBusy = absl::Milliseconds(200);
inline constexpr absl::Duration kFirstTrialPatience = absl::Seconds(1);
// Planning may be slow: the next worker gets twice the time, up to `step_timeout`.
absl::Duration NextPatience(absl::Duration patience, absl::Duration step_timeout);

// Multiplies a pause by 1 to 1.5.
class Jitter {
 public:
  absl::Duration operator()(absl::Duration pause);

 private:
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace evenkeel::client
