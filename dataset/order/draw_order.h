// The sequence of draws with heavy samples put together, for jobs that ask for it (`order.level`, `order.heavy`).
//
// A sample that is longer than a rank's fair share sets the time of its step, whatever the planner does. Where every step has
// one, every step waits. So the draws of a window are put in another order: its heavy samples come in as few steps as they
// need. The order is a function of the window's draws and lengths, so it needs no earlier window, is the same for any reader
// and any number of ranks, and leaves every epoch exact.
//
// Part of every stream that asks for it. Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/words.h"
#include "dataset/index/index.h"
#include "dataset/order/draws.h"
#include "dataset/order/recent_windows.h"

namespace evenkeel::dataset {

struct LevelSpec {
  uint32_t samples = 0;  // of a step; 0: steps are cut from the window by a budget of tokens
  double heavy = 8;      // a sample is heavy if it is longer than this many mean samples
  uint64_t key = 0;      // chooses which steps have the heavy samples
};

// Which draw of a window comes at each place, as numbers within the window. `lengths`: [draws, kinds], of every draw in every
// phase, in any unit; a share is a length over the mean of its kind. With a number of samples a step, their count divides the
// draws'.
std::vector<uint32_t> LevelWindow(std::vector<float> lengths, size_t kinds, const LevelSpec& spec);

class DrawOrder {
 public:
  // `index` must outlive the order. FailedPrecondition and InvalidArgument: see Draws::Make.
  static absl::StatusOr<std::unique_ptr<DrawOrder>> Make(const Job& job, const Index& index);

  // The number of draws; kNever: there is no end.
  uint64_t end() const { return draws_.end(); }

  // position < end(). Errors of the index.
  absl::StatusOr<SampleRef> At(uint64_t position) const;
  // Of `count` positions from `first` on, or fewer where the draws end.
  absl::StatusOr<std::vector<SampleRef>> Run(uint64_t first, uint64_t count) const;

 private:
  using Window = std::shared_ptr<const std::vector<uint32_t>>;

  DrawOrder(const Job& job, const Index& index, Draws draws);

  // The order of a window; the last ones are kept.
  absl::StatusOr<Window> WindowAt(uint64_t number) const;
  absl::StatusOr<Window> MakeWindow(uint64_t number) const;

  const Index& index_;
  const Draws draws_;
  const uint64_t window_;  // draws; 0: nothing is put together
  const uint64_t seed_;
  const LevelSpec spec_;
  mutable RecentWindows<std::vector<uint32_t>> recent_;
};

}  // namespace evenkeel::dataset
