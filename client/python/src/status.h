// Converts statuses of the C++ libraries to exceptions of the Python package. Thread safety: call with the
// GIL held.
#pragma once

#include "absl/status/status.h"

namespace evenkeel::python {

// Raises the exception of evenkeel/errors.py for the status; returns if the status is OK.
void Check(const absl::Status& status);

}  // namespace evenkeel::python
