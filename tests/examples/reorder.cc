// The examples of reorder/.
#include "absl/status/status.h"
#include "core/status.h"
#include "reorder/pipeline/pipeline_schedule.h"

namespace evenkeel::reorder {

absl::Status Schedule() {
#include "examples/reorder/pipeline/pipeline_schedule.h.inc"
  return absl::OkStatus();
}

}  // namespace evenkeel::reorder
