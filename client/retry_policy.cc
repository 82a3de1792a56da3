// Doubling pauses with their maxima, and budgets as plain arithmetic.
#include "client/retry_policy.h"

#include <algorithm>

namespace evenkeel::client {
namespace {

constexpr size_t kMaxInFlight = 64;
constexpr uint64_t kRequestsPerDuplicate = 20;  // 5 %

constexpr absl::Duration kFirstLoss = absl::Milliseconds(200);
constexpr absl::Duration kFirstEndOfSession = absl::Milliseconds(20);
constexpr absl::Duration kMaxBackoff = absl::Seconds(15);
constexpr absl::Duration kMaxBackoffAlone = absl::Milliseconds(700);

constexpr absl::Duration kMinTrialPatience = absl::Milliseconds(10);
constexpr absl::Duration kFirstFailure = absl::Milliseconds(100);
constexpr absl::Duration kFirstTrouble = absl::Milliseconds(100);
constexpr absl::Duration kMaxTrouble = absl::Milliseconds(700);
constexpr double kMinRetrySeconds = 0.01;
constexpr double kMaxRetrySeconds = 30;

// first * 2^min(times, max_doublings): the bound also keeps the shift from overflowing.
absl::Duration Doubled(absl::Duration first, size_t times, size_t max_doublings) {
  return first * (int64_t{1} << std::min(times, max_doublings));
}

Backoff WorkerBackoff(absl::Duration first, int failures) {
  const absl::Duration backoff = Doubled(first, static_cast<size_t>(failures), 10);
  return {std::min(backoff, kMaxBackoff), std::min(backoff, kMaxBackoffAlone)};
}

}  // namespace

size_t MaxInFlight(bool is_head) { return is_head ? kMaxInFlight : kMaxInFlight - kMaxInFlight / 4; }

bool MayDuplicate(uint64_t duplicates, uint64_t requests) {
  return (duplicates + 1) * kRequestsPerDuplicate <= requests;
}

// The third condition ends a run in which the same one or two workers fail again and again.
bool DataIsAtFault(size_t failures, size_t distinct_workers, size_t num_workers) {
  const bool few_workers = num_workers < kDistinctWorkers && failures >= kDistinctWorkers;
  return distinct_workers >= kDistinctWorkers || few_workers || failures >= kMaxFailedAttempts;
}

Backoff AfterLoss(int failures) { return WorkerBackoff(kFirstLoss, failures); }
Backoff AfterEndOfSession(int failures) { return WorkerBackoff(kFirstEndOfSession, failures); }

absl::Duration GreyTime(absl::Duration first, int stalls, absl::Duration max) {
  return std::min(Doubled(first, static_cast<size_t>(stalls), 10), std::max(first, max));
}

absl::Duration TrialPatience(absl::Duration first, int stalls, absl::Duration max) {
  const absl::Duration at_least = std::max(first, kMinTrialPatience);
  return std::min(Doubled(at_least, static_cast<size_t>(std::max(stalls, 1) - 1), 30), max);
}

absl::Duration AfterFailure(size_t failures) { return Doubled(kFirstFailure, failures - 1, 6); }

absl::Duration AfterTrouble(size_t times) { return std::min(Doubled(kFirstTrouble, times, 6), kMaxTrouble); }

absl::Duration AfterRefusal(double retry_after_seconds) {
  const bool sane = retry_after_seconds >= kMinRetrySeconds;  // false for NaN
  return absl::Seconds(sane ? std::min(retry_after_seconds, kMaxRetrySeconds) : kMinRetrySeconds);
}

absl::Duration NextPatience(absl::Duration patience, absl::Duration step_timeout) {
  return std::min(2 * patience, step_timeout);
}

absl::Duration Jitter::operator()(absl::Duration pause) {
  return pause * std::uniform_real_distribution<double>(1.0, 1.5)(random_);
}

}  // namespace evenkeel::client
