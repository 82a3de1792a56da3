// Where decoders and tokenizers may throw: an exception is no statement about the data, so the attempt failed
// and another worker is asked.
//
// Example:
//     absl::Status made = Attempt([&] { return Make(unit, fields, &valid); });
#pragma once

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/failure.h"

namespace evenkeel {

// Internal with the exception's message; where memory ran out, Unavailable as a failure of the machine.
inline absl::Status ExceptionStatus(const std::exception& error) {
  const bool is_size = dynamic_cast<const std::bad_array_new_length*>(&error) != nullptr;  // a wrong number
  if (!is_size && dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return WithKind(absl::UnavailableError("the worker is out of memory"), FailureKind::kMachine);
  }
  return absl::InternalError(error.what());
}

// What `work` returns, a Status or StatusOr; ExceptionStatus where it throws.
template <typename Work>
auto Attempt(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& error) {
    return ExceptionStatus(error);
  }
}

}  // namespace evenkeel
