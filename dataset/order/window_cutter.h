// Cuts draws into steps, a window of draws at a time. The table of steps numbers them through all windows.
//
// Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/digest.h"

namespace evenkeel::dataset {

class WindowCutter {
 public:
  virtual ~WindowCutter() = default;

  // At least 1, at most window_draws(). Takes the work of cutting the window. Errors of the index.
  virtual absl::StatusOr<uint32_t> CountSteps(uint64_t window) const = 0;
  // Of the largest window.
  virtual uint64_t window_draws() const = 0;
  // Names everything that determines the steps of every window.
  virtual const Digest& key() const = 0;
};

}  // namespace evenkeel::dataset
