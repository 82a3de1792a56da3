// Statuses of the C++ libraries as exceptions of the Python package.
// Thread safety: call with the GIL held.
#pragma once

#include "absl/status/status.h"

namespace evenkeel::python {

// Raises the exception of evenkeel/errors.py that fits; returns where the status is OK.
void Check(const absl::Status& status);

}  // namespace evenkeel::python
