// Cuts draws into steps, a window of draws at a time. The table of steps numbers them through all windows.
//
// Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/digest.h"

namespace evenkeel::dataset {

class WindowCutter {
 public:
  virtual ~WindowCutter() = default;

  // At least 1; of steps at most window_draws(). Takes the work of cutting the window. OutOfRange: the draws end before it.
  // Errors of the index.
  virtual absl::StatusOr<uint32_t> CountSteps(uint64_t window) const = 0;
  // 1: CountSteps counts steps. Above: it counts units of which a step has this many, wherever windows end.
  virtual uint64_t units_of_step() const { return 1; }
  // Of the largest window.
  virtual uint64_t window_draws() const = 0;
  // Names everything that determines the steps of every window.
  virtual const Digest& key() const = 0;
};

// What CountSteps returns for a window past the end.
inline absl::Status DrawsEndBefore(uint64_t window) {
  return absl::OutOfRangeError(absl::StrCat("the draws end before window ", window));
}

}  // namespace evenkeel::dataset
