// The steps of a job with a budget of llm tokens a step.
//
// A window of batch.window_samples draws is cut into as few runs of consecutive draws as the budget allows. Among these
// cuts the one whose largest run is smallest is taken, so that the last run of a window is not a stub. A sample longer
// than the budget is a step of its own. No step crosses a window.
//
// Part of every stream with such a budget. Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "dataset/index/index.h"
#include "dataset/order/draw_order.h"
#include "dataset/order/recent_windows.h"
#include "dataset/order/window_cutter.h"

namespace evenkeel::dataset {

// The begin of each step of a window: ascending, the first is 0. `lengths` is not empty.
std::vector<uint32_t> CutWindow(std::span<const uint32_t> lengths, uint64_t budget);

class TokenWindows : public WindowCutter {
 public:
  // All arguments must outlive it.
  TokenWindows(const Job& job, const Index& index, const DrawOrder& draws);

  struct Range {
    uint64_t begin = 0;  // positions of draws
    uint64_t end = 0;
  };
  // OutOfRange: the window has fewer steps. Otherwise errors of the index.
  absl::StatusOr<Range> DrawsOf(uint64_t window, uint32_t step) const;

  absl::StatusOr<uint32_t> CountSteps(uint64_t window) const override;
  uint64_t window_draws() const override { return window_; }
  const Digest& key() const override { return key_; }

 private:
  using Starts = std::shared_ptr<const std::vector<uint32_t>>;
  // The begin of each step of a window, in draws from its first, and the end of the last. OutOfRange: the draws end before it.
  absl::StatusOr<Starts> StartsOf(uint64_t window) const;
  absl::StatusOr<std::vector<uint32_t>> ReadLengths(uint64_t window) const;

  const Index& index_;
  const DrawOrder& draws_;
  const uint64_t budget_;
  const uint64_t window_;
  const Digest key_;
  mutable RecentWindows<std::vector<uint32_t>> recent_;
};

}  // namespace evenkeel::dataset
