// What happens while parts are made, for whoever counts, measures or logs it. Nothing of it reaches a part.
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

  // The bytes of an item were read in `read`, and its fields written in `written`.
  virtual void OnProduced(absl::Duration read, absl::Duration written,
                          const preprocess::ItemNotes& notes) = 0;
  // An item is in its part, dummies included; zeros where it is not valid.
  virtual void OnItem(const Phase& phase, bool valid, uint64_t input_rows) = 0;
  // A sample's sequence is in its part; a stand-in where it is not valid.
  virtual void OnSequence(bool valid, uint64_t tokens, absl::Duration duration) = 0;
  // A verdict (see IsVerdict). `what`: a medium or "text"; `sample`: its line in the job's exclude list.
  virtual void OnBad(std::string_view what, const std::string& sample, const absl::Status& why) = 0;
};

}  // namespace evenkeel::stream
