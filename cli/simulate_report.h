// What `evenkeel simulate` prints and draws.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "advise/step_model.h"

namespace evenkeel::cli {

// One policy over all steps.
struct PolicyFigures {
  std::string_view name;
  std::string_view says;  // one line
  uint32_t steps = 0;
  advise::StepFigures
      mean;  // sums until Finish; the memory is the largest, and `seconds` and the timeline are not filled
  advise::StepFigures first;  // of the first step, for pictures

  void Add(advise::StepFigures figures);
  void Finish();
};

struct Simulation {
  std::string heading;  // model, ranks, steps
  std::vector<PolicyFigures> policies;
  std::vector<SampleLengths> samples;  // of the first step
};

std::string SimulationTable(const Simulation& simulation);  // Markdown
std::string SimulationJson(const Simulation& simulation);

// "<8>x2 <3>x1 <1>x40": how many groups of which degree the first microbatch has; empty without groups.
std::string DegreesOf(const advise::StepFigures& figures);

// Writes loads-POLICY.svg, pipeline-POLICY.svg (with pipeline stages) and degrees-POLICY.svg (with context
// parallelism) for every policy, and lengths.svg.
// Unavailable: a file that cannot be written. The folder is made where it is missing.
absl::Status DrawSimulation(const Simulation& simulation, const std::string& folder);

}  // namespace evenkeel::cli
