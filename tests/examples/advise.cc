// The examples of advise/.
#include <vector>

#include "absl/status/status.h"
#include "advise/hybrid_groups.h"
#include "advise/policies.h"
#include "advise/step_model.h"
#include "advise/step_model_degrees.h"
#include "advise/training_model.h"
#include "core/status.h"
#include "tests/usual_phases.h"

namespace evenkeel::advise {

absl::Status PlanAs(const Job& job, const StepSamples& samples, const reorder::DummyItems& dummies) {
#include "examples/advise/policies.h.inc"
  return absl::OkStatus();
}

absl::Status Model(const Job& job, const Plan& plan, const TrainingModel& model, const Machine& machine) {
#include "examples/advise/step_model.h.inc"
  return absl::OkStatus();
}

absl::Status ModelWithDegrees(const Job& job, const StepSamples& samples, uint64_t longest,
                              const TrainingModel& model, const Machine& machine) {
#include "examples/advise/step_model_degrees.h.inc"
  return absl::OkStatus();
}

void RoundsOf(const std::vector<uint32_t>& tokens) {
#include "examples/advise/hybrid_groups.h.inc"
}

void CostOfAModel() {
#include "examples/advise/training_model.h.inc"
}

}  // namespace evenkeel::advise
