// Whose failure a status is. Set where the failure happens, and kept on its way to the consumer
// (proto/service.proto: FailureKind), which acts on it. It is never derived from a message.
//
// Example:
//     absl::Status status = WithKind(absl::NotFoundError("a.tar: No such file"), FailureKind::kMachine);
//     if (KindOf(status) == FailureKind::kMachine) RetryLater();
//
// Thread safety: pure functions.
#pragma once

#include <optional>

#include "absl/status/status.h"

namespace evenkeel {

enum class FailureKind {
  // The attempt to make the data failed, and the data may be the reason: a decoder process ended, or there
  // was an exception. Failed attempts on three different workers are a verdict on the data.
  kAttempt = 0,
  // The data is not what the index has: a checksum that differs.
  kData = 1,
  // Storage, open files, memory, a helper process. The same request succeeds once the machine is well.
  kMachine = 2,
  // No failure: the worker needs time before it can answer, and uses it. Ask again.
  kNotYet = 3,
};

// `status` with its kind, unless it is OK or already has one: the first to see a failure knows most of it.
absl::Status WithKind(absl::Status status, FailureKind kind);

// The kind that WithKind set; nullopt without one.
std::optional<FailureKind> KnownKind(const absl::Status& status);

// KnownKind. Without one: kMachine for Unavailable, Aborted and Cancelled, which say by their
// definition that the same request may succeed later; else kAttempt.
FailureKind KindOf(const absl::Status& status);

// Of a number from another process; kAttempt for an unknown number.
FailureKind FailureKindFrom(int number);

// Whether a processor's error means that the item is bad, found by counted work; else the attempt failed.
bool IsVerdict(const absl::Status& status);

// "attempt", "data", "machine", "not_yet": for logs.
const char* FailureKindName(FailureKind kind);

}  // namespace evenkeel
