// For a budget of llm tokens a step: which draws a step consists of.
//
// Draws are planned in windows of batch.window_samples. A window is cut into as few runs of consecutive draws
// as the budget allows, and among those cuts the one whose fullest run is least full is taken, so that the
// run that closes a window is not a stub. A sample longer than the budget is a step of its own. No step
// crosses a window.
//
// Steps are numbered through segments of 16 windows. A segment's table is compiled on its first use, which
// needs the tables before it, and kept in the index folder under a name made of all that decides its content;
// where the folder cannot be written it is kept in memory (4 bytes a step). Two processes may compile the
// same table at once.
//
// Part of every stream. Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/annotated_mutex.h"
#include "core/job.h"
#include "dataset/draws.h"
#include "dataset/index.h"
#include "dataset/paged_file.h"

namespace evenkeel::dataset {

inline constexpr uint64_t kSegmentWindows = 16;

// Where each step of a window begins: ascending, the first is 0. lengths is not empty.
std::vector<uint32_t> CutWindow(std::span<const uint32_t> lengths, uint64_t budget);

// Names all that decides the content of a job's tables.
Digest StepTableKey(const Job& job, const Index& index);

class StepTable {
 public:
  // All must outlive the table.
  StepTable(const Job& job, const Index& index, const Draws& draws);

  struct Range {
    uint64_t begin = 0;  // positions of draws
    uint64_t end = 0;
  };
  // Errors of the index; OutOfRange: a step beyond any training.
  absl::StatusOr<Range> At(uint64_t step) const;

 private:
  struct Segment {
    std::vector<uint32_t> starts;  // of its steps, in draws from its first
    bool stored = false;
  };

  uint64_t segment_draws() const { return kSegmentWindows * window_; }
  absl::StatusOr<std::shared_ptr<const Segment>> Get(uint64_t segment, uint64_t first_step) const;
  absl::StatusOr<std::shared_ptr<const Segment>> LoadSegment(uint64_t segment, uint64_t first_step) const;
  absl::StatusOr<std::shared_ptr<const Segment>> CompileSegment(uint64_t segment, uint64_t first_step) const;
  absl::StatusOr<std::vector<uint32_t>> ReadLengths(uint64_t first_draw) const;
  std::string SegmentPath(uint64_t segment) const;
  void Remember(uint64_t segment, uint64_t first_step, std::shared_ptr<const Segment> loaded) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Index& index_;
  const Draws& draws_;
  const std::string folder_;
  const uint64_t budget_;
  const uint64_t window_;
  const Digest key_;  // of all that decides the table
  std::unique_ptr<ByteSource> files_ = MakeFileSource(4);
  mutable PageCache cache_{1 << 20};

  mutable Mutex compiling_;  // one compiles, the others wait for it; taken before mutex_
  mutable Mutex mutex_;
  mutable std::vector<uint64_t> first_steps_ ABSL_GUARDED_BY(mutex_) = {
      0};  // of the known segments, and the next
  mutable std::map<uint64_t, std::shared_ptr<const Segment>> segments_ ABSL_GUARDED_BY(mutex_);
  mutable std::vector<uint64_t> recent_ ABSL_GUARDED_BY(mutex_);  // stored ones in segments_, oldest first
};

}  // namespace evenkeel::dataset
