// Small files as a whole: a job, a certificate.
//
// Thread safety: a function without state.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace evenkeel {

// The first `most` bytes of a file at `path`: ask for one more than is allowed, and a file that is too large
// shows. NotFound: there is no such file, or it cannot be read, as a folder; the message is the system's
// reason alone.
absl::StatusOr<std::string> ReadAtMost(const std::string& path, size_t most);

}  // namespace evenkeel
