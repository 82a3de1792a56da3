// The tokens of a job whose documents are concatenated and cut into chunks (`batch.chunk`).
//
// Samples follow one another in the order of their draws. A window of batch.window_samples draws counts its tokens, so the
// table of steps (step_table.h) numbers tokens here: it finds the window of any token of the endless sequence.
//
// Part of every stream with chunks. Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/words.h"
#include "dataset/index/index.h"
#include "dataset/order/draw_order.h"
#include "dataset/order/recent_windows.h"
#include "dataset/order/window_cutter.h"

namespace evenkeel::dataset {

class ChunkWindows : public WindowCutter {
 public:
  // All arguments must outlive it.
  ChunkWindows(const Job& job, const Index& index, const DrawOrder& draws);

  struct Window {
    std::vector<SampleRef> refs;   // of the draws
    std::vector<uint32_t> begins;  // [draws + 1] the first token of each, the last is their number
  };
  // Errors of the index. InvalidArgument: a sample is not text alone, all trained; names it.
  absl::StatusOr<std::shared_ptr<const Window>> WindowAt(uint64_t number) const;

  absl::StatusOr<uint32_t> CountSteps(uint64_t window) const override;
  uint64_t window_draws() const override { return window_; }
  uint64_t units_of_step() const override { return chunk_.length * chunk_.count; }
  const Digest& key() const override { return key_; }

 private:
  absl::Status CheckTextAlone(const SampleRef& ref, const SampleLengths& lengths) const;

  const Job& job_;
  const Index& index_;
  const DrawOrder& draws_;
  const ChunkSpec chunk_;
  const uint64_t window_;
  const Digest key_;
  mutable RecentWindows<Window> recent_;
};

}  // namespace evenkeel::dataset
