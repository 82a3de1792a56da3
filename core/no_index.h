// Marks the errors that `evenkeel index` resolves, so that a program can tell them from a missing file without
// reading the message.
//
// Example:
//     absl::Status status = WithNoIndex(absl::NotFoundError("index: no index in this folder"));
//     if (IsNoIndex(status)) MakeIndex();
//
// Thread safety: pure functions.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace evenkeel {

inline constexpr char kNoIndexUrl[] = "evenkeel.no_index";

// The status with the mark. Not OK.
inline absl::Status WithNoIndex(absl::Status status) {
  status.SetPayload(kNoIndexUrl, absl::Cord());
  return status;
}

inline bool IsNoIndex(const absl::Status& status) { return status.GetPayload(kNoIndexUrl).has_value(); }

}  // namespace evenkeel
