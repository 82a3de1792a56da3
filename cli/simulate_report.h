// What `evenkeel simulate` prints and draws.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reorder/policies.h"
#include "reorder/step_model.h"

namespace evenkeel::cli {

// One policy over all steps.
struct PolicyFigures {
  const Policy* policy = nullptr;
  uint32_t steps = 0;
  StepFigures
      mean;  // sums until Finish; the memory is the largest, and `seconds` and the timeline are not filled
  StepFigures first;  // of the first step, for pictures

  void Add(StepFigures figures);
  void Finish();
};

struct Simulation {
  std::string heading;  // model, ranks, steps
  std::vector<PolicyFigures> policies;
  std::vector<SampleLengths> samples;  // of the first step
};

std::string SimulationTable(const Simulation& simulation);  // Markdown
std::string SimulationJson(const Simulation& simulation);

// Writes loads-POLICY.svg, pipeline-POLICY.svg (with pipeline stages) for every policy, and lengths.svg.
// Unavailable: a file that cannot be written. The folder is made where it is missing.
absl::Status DrawSimulation(const Simulation& simulation, const std::string& folder);

}  // namespace evenkeel::cli
