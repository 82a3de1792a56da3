// The examples of advise/.
#include "absl/status/status.h"
#include "advise/step_model.h"
#include "core/status.h"

namespace evenkeel::advise {

absl::Status Model(const Job& job, const Plan& plan, const TrainingModel& model, const Machine& machine) {
#include "examples/advise/step_model.h.inc"
  return absl::OkStatus();
}

}  // namespace evenkeel::advise
