// Two macros over absl::Status, and the helper that adds where an error happened.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define EVENKEEL_RETURN_IF_ERROR(expr)                                  \
  do {                                                                  \
    if (::absl::Status _status = (expr); !_status.ok()) return _status; \
  } while (false)

#define EVENKEEL_CONCAT_INNER(a, b) a##b
#define EVENKEEL_CONCAT(a, b) EVENKEEL_CONCAT_INNER(a, b)

#define EVENKEEL_ASSIGN_OR_RETURN(lhs, expr) \
  EVENKEEL_ASSIGN_OR_RETURN_IMPL(EVENKEEL_CONCAT(_status_or_, __LINE__), lhs, expr)
#define EVENKEEL_ASSIGN_OR_RETURN_IMPL(statusor, lhs, expr) \
  auto statusor = (expr);                                   \
  if (!statusor.ok()) return std::move(statusor).status();  \
  lhs = *std::move(statusor)

namespace evenkeel {

// `status` with "where: " before its message. OK stays OK; the code and payloads stay.
inline absl::Status AddContext(const absl::Status& status, absl::string_view where) {
  if (status.ok()) return status;
  absl::Status out(status.code(), absl::StrCat(where, ": ", status.message()));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

}  // namespace evenkeel
