// The steps of a job whose samples are packed into bins (`batch.pack`).
//
// The draws of a window are packed together, and a step is the next batch.pack.bins bins. With one dataset the windows
// divide the epoch evenly, so that no step has samples of two epochs; with several a window has batch.window_samples draws.
//
// Part of every stream that is packed. Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "dataset/index/index.h"
#include "dataset/order/draw_order.h"
#include "dataset/order/packer.h"
#include "dataset/order/recent_windows.h"
#include "dataset/order/window_cutter.h"

namespace evenkeel::dataset {

// Which draws a window has.
class WindowDraws {
 public:
  // `epoch`: samples of the only dataset; 0: there are several.
  WindowDraws(uint64_t window_samples, uint64_t epoch);

  uint64_t First(uint64_t window) const;
  uint64_t Count(uint64_t window) const { return First(window + 1) - First(window); }
  uint64_t most() const { return most_; }  // of any window

 private:
  uint64_t epoch_ = 0;    // 0: windows of most_ draws
  uint64_t windows_ = 1;  // of an epoch
  uint64_t most_ = 1;
};

// Of one step.
struct StepBins {
  std::vector<uint64_t> draws;      // positions, bin by bin
  std::vector<uint32_t> bin_begin;  // [bins + 1] in `draws`
};

class PackedWindows : public WindowCutter {
 public:
  // All arguments must outlive it.
  PackedWindows(const Job& job, const Index& index, const DrawOrder& draws, const Packer& packer);

  // OutOfRange: the window has fewer steps. Otherwise errors of the index and of the packer.
  absl::StatusOr<StepBins> BinsOf(uint64_t window, uint32_t step) const;

  absl::StatusOr<uint32_t> CountSteps(uint64_t window) const override;
  uint64_t window_draws() const override { return draws_of_.most(); }
  const Digest& key() const override { return key_; }

 private:
  // Draws are counted from the window's first.
  struct Window {
    std::vector<uint32_t> draws;      // bin by bin
    std::vector<uint32_t> bin_begin;  // [bins + 1] in `draws`
  };
  absl::StatusOr<std::shared_ptr<const Window>> WindowAt(uint64_t number) const;
  absl::StatusOr<Window> MakeWindow(uint64_t number) const;
  // Names the first sample that no bin holds; otherwise `status`.
  absl::Status NameSample(const absl::Status& status, const std::vector<SampleRef>& refs,
                          const std::vector<SampleLengths>& lengths) const;

  const Job& job_;
  const Index& index_;
  const DrawOrder& draws_;
  const Packer& packer_;
  const uint32_t bins_;  // of a step
  const WindowDraws draws_of_;
  const Digest key_;
  mutable RecentWindows<Window> recent_;
};

}  // namespace evenkeel::dataset
