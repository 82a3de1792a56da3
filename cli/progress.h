// Work on numbered pieces in threads, with a progress bar on a terminal and a line every few seconds
// elsewhere.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace evenkeel::cli {

// Calls work(0) .. work(count - 1), each once, from `threads` threads, in about that order. After the first
// error no new piece is begun; that of the lowest piece is returned. `noun`: "shards", for the progress on
// stderr.
absl::Status RunInParallel(size_t count, size_t threads, const std::string& noun,
                           const std::function<absl::Status(size_t)>& work);

}  // namespace evenkeel::cli
