// Callbacks for what happens while parts are made, for counting, measuring and logging. They never influence
// a part.
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/words.h"
#include "preprocess/processor.h"

namespace evenkeel::stream {

class PartEvents {
 public:
  virtual ~PartEvents() = default;

  // An item was read and decoded; the durations of reading and of writing its fields.
  virtual void OnProduced(absl::Duration read, absl::Duration written,
                          const preprocess::ItemNotes& notes) = 0;
  // An item is in its part, dummies included; it is all zeros if not `valid`.
  virtual void OnItem(const Phase& phase, bool valid, uint64_t input_rows) = 0;
  // A sample's sequence is in its part; a stand-in if not `valid`.
  virtual void OnSequence(bool valid, uint64_t tokens, absl::Duration duration) = 0;
  // Data was found bad (IsVerdict). `what`: a medium or "text"; `sample`: its line for the job's exclude
  // list.
  virtual void OnBad(std::string_view what, const std::string& sample, const absl::Status& why) = 0;
};

}  // namespace evenkeel::stream
