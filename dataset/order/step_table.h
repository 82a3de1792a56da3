// The window of each step, and which of the window's steps it is, where windows differ in their steps (window_cutter.h).
//
// Where a step has a number of units (tokens of chunks), "step" is a unit here, and messages have steps.
//
// Steps are numbered through all windows before them, so the table stores the number of steps of every
// window: 4 bytes a window. It grows window by window, in order, and is stored in the index folder, 2^16
// windows a file, under names made of everything that determines the content. If the folder cannot be
// written, the table is only in memory. Several processes may extend the same table at once: their results are equal, and each takes over what another one
// stored.
//
// All work is bounded. At() extends the table by a few windows at most. A step further away is refused with
// FailureKind::kNotYet: Extend() brings the table nearer, a slice at a time, on a thread of its caller's
// choice. A step that is further away than kMaxAheadDraws draws is OutOfRange.
//
// Part of every stream. Thread safety: const members may be called from many threads; no lock is held while a
// window is compiled.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/annotated_mutex.h"
#include "core/job.h"
#include "dataset/index/index.h"
#include "dataset/order/window_cutter.h"
#include "dataset/source/paged_file.h"

namespace evenkeel::dataset {

inline constexpr uint64_t kFileWindows = 1 << 16;  // of one file: 256 KiB
inline constexpr uint64_t kMaxWindows = 1 << 26;   // of a table: 1024 files
inline constexpr uint64_t kAtOnceDraws = 1 << 16;  // compiled by At(), or one window: about 0.1 s
inline constexpr uint64_t kSliceDraws = 1 << 17;   // compiled by one call of Extend(), or one window
inline constexpr uint64_t kMaxAheadDraws = 1ull
                                           << 32;  // between the table's end and a step that can be requested

// Names everything that determines the content of a job's tables.
Digest StepTableKey(const Job& job, const Index& index);

// OutOfRange: the step is past the end of a stream of `num_steps`.
absl::Status PastTheEnd(uint64_t step, uint64_t num_steps);

class StepTable {
 public:
  // `folder`: of the index. `cutter` must outlive the table.
  StepTable(std::string folder, const WindowCutter& cutter);

  struct Place {
    uint64_t window = 0;
    uint32_t step = 0;  // of the window's
  };
  // Of kind kNotYet: the table must be extended first. OutOfRange: the step is too far away (names the
  // largest one that can be requested now) or past the end. Otherwise errors of the index.
  absl::StatusOr<Place> At(uint64_t step) const;

  // Compiles up to the end of the draws and returns the number of steps; where a step has units, of units.
  absl::StatusOr<uint64_t> NumSteps() const;

  // Compiles the next windows, kSliceDraws at most. Returns whether At(step) can answer now. OutOfRange and
  // errors of the index as At.
  absl::StatusOr<bool> Extend(uint64_t step) const;

  // DataLoss: what a caller finds if a window has fewer steps than the table says.
  absl::Status BelongsElsewhere() const;

 private:
  static constexpr uint64_t kMarkWindows = 1024;

  std::optional<Place> Find(uint64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The mean over the known windows; a guess before the first one.
  double DrawsPerStep() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // OutOfRange: `step` is too far from the table's end.
  absl::Status CheckReach(uint64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NotYet(uint64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(uint32_t num_steps) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // OutOfRange: the draws have ended, and `step` is not in the table.
  absl::Status CheckEnd(uint64_t step) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Compiles the next window, unless another thread was faster.
  absl::Status ExtendByOne() const;

  std::string FilePath(uint64_t file) const;
  // Reads windows from files beyond the table's end.
  void Load() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(files_mutex_);
  absl::StatusOr<std::vector<uint32_t>> ReadFile(uint64_t file, uint64_t known) const;
  // Stores the next file with new windows; the last file only if it has many new windows or with `all`.
  bool StoreNextFile(bool all) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(files_mutex_);  // false: nothing to store
  void Store(bool all) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(files_mutex_);

  const std::string folder_;
  const WindowCutter& cutter_;
  const uint64_t window_;  // draws of the largest
  const Digest key_;       // of everything that determines the table
  std::unique_ptr<ByteSource> files_ = MakeFileSource(4);
  mutable PageCache cache_{1 << 18};

  mutable Mutex files_mutex_;  // one thread loads or stores; acquired before mutex_
  mutable std::atomic<bool> loaded_{false};
  mutable Mutex mutex_;
  mutable std::vector<uint32_t> counts_ ABSL_GUARDED_BY(mutex_);  // steps of each window
  mutable std::vector<uint64_t> marks_ ABSL_GUARDED_BY(mutex_);  // first step of every kMarkWindows-th window
  mutable uint64_t num_steps_ ABSL_GUARDED_BY(mutex_) = 0;       // of all windows known
  mutable bool ended_ ABSL_GUARDED_BY(mutex_) = false;           // the draws have no further window
  mutable uint64_t num_stored_ ABSL_GUARDED_BY(mutex_) = 0;      // windows in files
};

}  // namespace evenkeel::dataset
