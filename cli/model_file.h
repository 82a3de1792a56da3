// The model of `evenkeel simulate --model`: a name of advise/training_model.h, a model file, or a checkpoint's config.json.
//
// A model file is YAML:
//     name: omni-30b
//     phases:
//       llm: {parameters: 30.5e9, active_parameters: 3.3e9, layers: 48, hidden: 2048, heads: 32, attention_width: 4096,
//             key_width: 512}
//       vision: {parameters: 0.54e9, layers: 27, hidden: 1152}
//     machine: {peak_tflops: 313, intra_node_gbs: 196, inter_node_gbs: 12.5, memory_gb: 64}
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "advise/training_model.h"

namespace evenkeel::cli {

// The section `machine`: as advise::Machine, in the units of the command line. nullopt: not given.
struct GivenMachine {
  std::optional<double> peak_tflops, intra_node_gbs, inter_node_gbs, memory_gb;
  std::optional<uint32_t> tensor_parallel;
  std::optional<bool> recompute;
};

struct GivenModel {
  advise::TrainingModel model;
  GivenMachine machine;
};

// `name`: a known model, else a file, whose name ends in .json if it is a config.json, or a folder that has one.
// InvalidArgument: neither is there, or the file is wrong: with its path, the line or key, and the nearest known key.
absl::StatusOr<GivenModel> FindModel(const std::string& name);

// A model file of these phases, to begin one's own with.
std::string ModelFileText(const advise::TrainingModel& model);

}  // namespace evenkeel::cli
