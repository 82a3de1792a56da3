// When and how often the consumer asks again: every pause, every budget and the share of duplicates.
//
// Only decisions, as functions of counts: who is asked is WorkerTable's, what happened is PartFetch's and
// StepFetch's. Pauses double with every failure in a row up to a maximum, and the fetch loop multiplies them
// by a random factor, so that the ranks of a run do not ask in unison.
//
// Thread safety: functions without state; Jitter belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace evenkeel::client {

// ---- Budgets

inline constexpr size_t kMaxCopies = 2;           // of one part, in flight at the same time
inline constexpr size_t kDistinctWorkers = 3;     // failures on this many workers mean bad data
inline constexpr size_t kMaxFailedAttempts = 12;  // the same, if three distinct workers are never reached
inline constexpr size_t kMaxDamagedArrivals = 6;  // wrong hashes of one part

// Copies in flight over all workers. The last quarter is reserved for the head step.
size_t MaxInFlight(bool is_head);

// True while a second copy of a part that does not move keeps duplicates within 5 % of all requests.
bool MayDuplicate(uint64_t duplicates, uint64_t requests);

// True if failures are attributed to the data and no longer to workers: kDistinctWorkers of them failed, or,
// of a smaller list, this many attempts did. `num_workers`: listed workers.
bool DataIsAtFault(size_t failures, size_t distinct_workers, size_t num_workers);

// ---- Pauses of a worker, before its session is opened again

struct Backoff {
  absl::Duration among_others;
  absl::Duration alone;  // no other worker is ready: a restarted worker is found soon
};
// It was lost or cannot be reached; `failures`: in a row, before this one.
Backoff AfterLoss(int failures);
// It ended an idle session, or was restarted: no blame.
Backoff AfterEndOfSession(int failures);

inline constexpr absl::Duration kRejectedFor = absl::Seconds(30);  // it serves another stream
// How long a worker without progress is asked last; `stalls`: in a row, before this one.
absl::Duration GreyTime(absl::Duration first, int stalls, absl::Duration max);
// How long a request to a worker on trial is waited for: `first` after its first stall, twice as long after
// each one more, so that a worker that is merely slow comes to its end sooner or later.
absl::Duration TrialPatience(absl::Duration first, int stalls, absl::Duration max);

// ---- Pauses of a part

// An attempt failed; `failures`: with this one.
absl::Duration AfterFailure(size_t failures);
// The worker's machine failed; `times`: before this one. For that worker alone.
absl::Duration AfterTrouble(size_t times);
// The worker refused it and named a time; at least 10 ms (also for NaN), at most 30 s.
absl::Duration AfterRefusal(double retry_after_seconds);

inline constexpr double kRefusedStreamSeconds = 0.2;  // refused by the RPC's status, which names no time
inline constexpr absl::Duration kAfterDamage = absl::Seconds(2);  // for the worker that sent it

// ---- Pauses of a step's description

inline constexpr absl::Duration kAfterDescribeFailed = absl::Milliseconds(50);
inline constexpr absl::Duration kAvoidAfterDescribeFailed = absl::Seconds(1);  // the worker that failed
inline constexpr absl::Duration kAfterDescribeNotYet = absl::Milliseconds(400);
inline constexpr absl::Duration kAfterDescribeBusy = absl::Milliseconds(200);
inline constexpr absl::Duration kFirstTrialPatience = absl::Seconds(1);
// Planning may take its time: the next worker gets twice as much.
absl::Duration NextPatience(absl::Duration patience, absl::Duration step_timeout);

// Multiplies a pause by 1 to 1.5.
class Jitter {
 public:
  absl::Duration operator()(absl::Duration pause);

 private:
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace evenkeel::client
