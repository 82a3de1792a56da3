// What a training step computes and holds: sizes of the papers' models, and the machine they run on.
//
// Not what a rank is given to do (core/plan.h), nor how long it then takes (step_model.h).
//
//   const TrainingModel* model = FindTrainingModel("mllm-10b");
//   Cost cost = ForwardFlops(*model->phase(Phase::kVision));   // a phase's cost in a job, in FLOPs
//
// Thread safety: plain values; needs none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/job.h"

namespace evenkeel::advise {

// A transformer: `layers` of width `hidden`.
struct PhaseModel {
  Phase phase = Phase::kLlm;
  double parameters = 0;
  uint32_t layers = 0;
  uint32_t hidden = 0;
  bool causal = false;     // a token attends to those before it only
  uint32_t window = 0;     // tokens that attend to one another, as in one tile of an image; 0: a whole unit
  uint32_t key_width = 0;  // of a token's keys in a layer, and of its values: heads may share them; 0: hidden

  uint32_t heads = 0;  // of attention; 0: as many as one likes

  uint32_t KeyWidth() const { return key_width > 0 ? key_width : hidden; }
};

struct TrainingModel {
  std::string name;
  std::string source;  // the paper's name for it, and where it says so
  std::vector<PhaseModel> phases;

  const PhaseModel* phase(Phase phase) const;  // null where the model has none
};

// The model of that name, valid for ever; null where there is none.
const TrainingModel* FindTrainingModel(std::string_view name);
// "a, b, c", for messages.
std::string TrainingModelNames();

// FLOPs of the forward pass over a unit of n tokens: 2 for every parameter and token; for attention 4 n^2 per
// layer and hidden dimension (scores and values, a multiplication and an addition each), half of it where it
// is causal.
Cost ForwardFlops(const PhaseModel& model);

struct Machine {
  double peak_flops = 989e12;           // of a GPU; H100, bf16
  double intra_node_bandwidth = 450e9;  // of a GPU, bytes per second and direction
  double inter_node_bandwidth = 50e9;   // the same
  double memory_bytes = 80e9;           // of a GPU
  uint32_t gpus_per_stage = 1;          // tensor parallel: of a pipeline stage, or of a rank without stages
  bool recompute = true;                // activations are computed again for the backward pass
};

}  // namespace evenkeel::advise
