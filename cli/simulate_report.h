// The table, the JSON and the pictures of `evenkeel simulate`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "advise/step_model.h"

namespace evenkeel::cli {

// The figures of one policy over all steps.
struct PolicyFigures {
  std::string_view name;
  std::string_view summary;  // one line
  uint32_t steps = 0;
  advise::StepFigures
      // sums until Finish, then means; the memory is the maximum, `seconds` and the timeline are not filled
      mean;
  advise::StepFigures first;  // the first step, for pictures

  void Add(advise::StepFigures figures);
  void Finish();
};

struct Simulation {
  std::vector<Phase> phases;  // of the job or the trace
  std::string heading;        // model, ranks, steps
  std::vector<PolicyFigures> policies;
  std::vector<SampleLengths> samples;  // of the first step
};

std::string SimulationTable(const Simulation& simulation);  // Markdown
std::string SimulationJson(const Simulation& simulation);

// The groups of the first microbatch, as "<8>x2 <3>x1": two of degree 8, one of 3. Empty: no groups.
std::string DegreesOf(const advise::StepFigures& figures);

// Writes loads-POLICY.svg, pipeline-POLICY.svg (with pipeline stages) and degrees-POLICY.svg (with context
// parallelism) for every policy, and lengths.svg.
// Makes the folder if it is missing. Unavailable: a file cannot be written.
absl::Status DrawSimulation(const Simulation& simulation, const std::string& folder);

}  // namespace evenkeel::cli
