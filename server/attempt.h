// Where decoders and tokenizers may throw: what they throw says nothing about the data, so the attempt failed
// and another worker is asked.
//
//   absl::Status made = Attempt([&] { return Make(unit, fields, &valid); });
#pragma once

#include <exception>

#include "absl/status/status.h"

namespace evenkeel {

// What `work` returns, a Status or StatusOr; Internal with the message of an exception.
template <typename Work>
auto Attempt(Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  }
}

}  // namespace evenkeel
