// Stores the kind of a failure as a payload of one digit in its status, where AddContext keeps it.
#include "core/failure.h"

#include <string>

#include "absl/strings/cord.h"

namespace evenkeel {
namespace {

constexpr absl::string_view kKindUrl = "evenkeel/failure";

}  // namespace

// The first kind that is set stays: the code that met the failure knows it best.
absl::Status WithKind(absl::Status status, FailureKind kind) {
  if (status.ok() || status.GetPayload(kKindUrl).has_value()) return status;
  status.SetPayload(kKindUrl, absl::Cord(std::string(1, static_cast<char>('0' + static_cast<int>(kind)))));
  return status;
}

std::optional<FailureKind> KnownKind(const absl::Status& status) {
  const auto payload = status.GetPayload(kKindUrl);
  if (!payload.has_value() || payload->size() != 1) return std::nullopt;
  return FailureKindFrom((*payload)[0] - '0');
}

FailureKind FailureKindFrom(int number) {
  const bool is_ours = number >= 0 && number <= static_cast<int>(FailureKind::kNotYet);
  return is_ours ? static_cast<FailureKind>(number) : FailureKind::kAttempt;
}

// Without a kind, the status code decides: a peer that is unavailable is a failure of the machine, everything
// else of this attempt.
FailureKind KindOf(const absl::Status& status) {
  if (const auto known = KnownKind(status); known.has_value()) return *known;
  const bool is_later = absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsCancelled(status);
  return is_later ? FailureKind::kMachine : FailureKind::kAttempt;
}

// These codes are what processors return for bad data; another code means that the attempt failed.
bool IsVerdict(const absl::Status& status) {
  if (KindOf(status) != FailureKind::kAttempt) return false;
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

const char* FailureKindName(FailureKind kind) {
  switch (kind) {
    case FailureKind::kAttempt:
      return "attempt";
    case FailureKind::kData:
      return "data";
    case FailureKind::kMachine:
      return "machine";
    case FailureKind::kNotYet:
      return "not_yet";
  }
  return "attempt";
}

}  // namespace evenkeel
