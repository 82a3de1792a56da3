// The work that makes one part, divided into units that may run on different threads.
//
// The caller allocates num_bytes() once and passes the same memory to every call.
//
// Example:
//     task.Begin(part);  // once, before any unit
//     for (size_t unit = 0; unit < task.num_units(); ++unit) {  // in any order, on any thread
//       EVENKEEL_RETURN_IF_ERROR(task.RunUnit(unit, part));
//     }
//
// After all units every byte of the part is written. The bytes depend on (index, job, step, part) alone.
//
// Thread safety: different units may run at the same time, after Begin has returned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "core/part.h"

namespace evenkeel::stream {

class PartTask {
 public:
  virtual ~PartTask() = default;

  virtual const PartName& name() const = 0;
  // Exact; known before anything is read.
  virtual uint64_t num_bytes() const = 0;
  // Of the part, as long as the task. Null: its bytes are not a part (in tests and benchmarks).
  virtual const PartLayout* layout() const { return nullptr; }
  virtual size_t num_units() const = 0;
  // Memory that one running unit takes in addition to the part: the largest medium as stored.
  virtual uint64_t scratch_bytes() const = 0;

  // Announces what the units will read, so that a far source can fetch it meanwhile. At most once, also while units run.
  virtual void Expect() {}

  // True if decoder processes write into the part: then its memory must be the stream's shared memory.
  virtual bool is_shared() const { return false; }

  virtual void Begin(std::span<std::byte> part) = 0;
  // How many units from `first` on one thread should run in a row: more than one if units are so short that
  // handing out each costs more than its work. At least 1, at most the units left.
  virtual size_t units_at_once(size_t first) const {
    (void)first;
    return 1;
  }
  // An error concerns the attempt: another worker may succeed. Bad data is not an error but an invalid item.
  // The status names the sample; ExcludeLine() gives the job's line if leaving the sample out would help.
  virtual absl::Status RunUnit(size_t unit, std::span<std::byte> part) = 0;
};

// Attaches a line of the job's `exclude` list to a status, unless the machine failed: leaving data out would
// not help then.
absl::Status WithExcludeLine(absl::Status status, const std::string& line);
std::string ExcludeLine(const absl::Status& status);  // empty if the status has none

}  // namespace evenkeel::stream
