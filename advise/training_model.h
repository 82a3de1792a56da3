// What a training step computes and stores: the sizes of the papers' models, and the machine that they run
// on.
//
// It has neither the work of a rank (core/plan.h) nor its duration (step_model.h).
//
// Example:
//     const TrainingModel* model = FindTrainingModel("mllm-10b");
//     Cost cost = ForwardFlops(*model->phase(Phase("vision")));  // a phase's cost in a job, in FLOPs
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
  bool causal = false;  // a token attends only to earlier tokens
  uint32_t window = 0;  // tokens that attend to one another, as in one tile of an image; 0: the whole unit
  // width of a token's keys in a layer, and of its values: heads may share them; 0: hidden
  uint32_t key_width = 0;

  uint32_t heads = 0;  // attention heads; 0: no limit

  double active_parameters = 0;    // that multiply a token, as of a mixture of experts; 0: all
  uint32_t attention_width = 0;    // of a token's queries in a layer: heads times their width; 0: hidden
  uint32_t windowed_layers = 0;    // layers with `window`, the others attend to the whole unit; 0: all layers
  uint32_t lengths_per_token = 1;  // of a unit's length: an audio encoder makes a token of two frames

  double ActiveParameters() const { return active_parameters > 0 ? active_parameters : parameters; }
  uint32_t AttentionWidth() const { return attention_width > 0 ? attention_width : hidden; }
  uint32_t KeyWidth() const { return key_width > 0 ? key_width : hidden; }
};

struct TrainingModel {
  std::string name;
  std::string source;  // the model's name in the paper, and the place
  std::vector<PhaseModel> phases;

  // The phase of that name; else, for a further encoder or generator, one of its kind that takes one of its media, so
  // that it counts as large. Null: the model has neither.
  const PhaseModel* phase(const Phase& phase) const;
};

// The model of that name, valid for the life of the process; null: there is none.
const TrainingModel* FindTrainingModel(std::string_view name);
// The names, as "a, b, c", for messages.
std::string TrainingModelNames();

// FLOPs of the forward pass over a unit of length n: 2 for every active parameter and token; for attention 4 per
// layer, dimension of the queries and pair of tokens that may attend (scores and values, each a multiplication and an
// addition), half of it if attention is causal. Layers with a window have as many pairs as tokens times the window.
Cost ForwardFlops(const PhaseModel& model);

struct Machine {
  double peak_flops = 989e12;           // of one GPU; H100, bf16
  double intra_node_bandwidth = 450e9;  // of one GPU, bytes per second in each direction
  double inter_node_bandwidth = 50e9;   // the same
  double memory_bytes = 80e9;           // of one GPU
  // tensor parallel GPUs of a pipeline stage, or of a rank without stages
  uint32_t gpus_per_stage = 1;
  bool recompute = true;  // activations are computed again in the backward pass
};

}  // namespace evenkeel::advise
