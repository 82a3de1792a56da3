// The sizes of the papers' models, and the FLOPs of their layers.
#include "advise/training_model.h"

#include <algorithm>

#include "core/implied_media.h"
#include "reorder/by_name.h"

namespace evenkeel::advise {
namespace {

constexpr uint32_t kHeadWidth = 128;  // of the llms whose number of key heads DHP prints

PhaseModel Llm(double parameters, uint32_t layers, uint32_t hidden, uint32_t heads = 0,
               uint32_t key_groups = 0) {
  return {Phase::kLlm, parameters, layers, hidden, /*causal=*/true, /*window=*/0, kHeadWidth * key_groups,
          heads};
}
PhaseModel Vision(double parameters, uint32_t layers, uint32_t hidden, uint32_t window = 0) {
  return {*PhaseOfImpliedMedia("vision"), parameters, layers, hidden, /*causal=*/false, window};
}
// Stable Diffusion 2.1, by its U-Net: 16 transformer blocks, most parameters at a width of 1280.
PhaseModel Generator() { return {ImpliedGenerator(), 0.87e9, 16, 1280, /*causal=*/false}; }
PhaseModel Audio(double parameters, uint32_t layers, uint32_t hidden) {
  return {*PhaseOfImpliedMedia("audio"), parameters, layers, hidden, /*causal=*/false};
}

// One tile of 448 x 448 pixels in 14-pixel patches: InternVL encodes every tile separately.
constexpr uint32_t kTile = 1024;

// Layers and widths are those that the papers print. Where a paper names an encoder without its sizes, the
// sizes are those of the published encoder: ViT-Huge (DistTrain), InternViT-6B (OmniBal). Likewise for DistTrain's
// generator, whose text conditioning is left out.
const std::vector<TrainingModel>& Models() {
  static const std::vector<TrainingModel> models = {
      {"mllm-10b",
       "OrchMLLM, table 1: MLLM-10B",
       {Llm(7e9, 28, 3584), Vision(2e9, 36, 2048), Audio(0.6e9, 32, 1280)}},
      {"mllm-18b",
       "OrchMLLM, table 1: MLLM-18B",
       {Llm(14e9, 48, 5120), Vision(3e9, 40, 2400), Audio(0.6e9, 32, 1280)}},
      {"mllm-84b",
       "OrchMLLM, table 1: MLLM-84B",
       {Llm(72e9, 80, 8192), Vision(6e9, 45, 3200), Audio(6e9, 48, 3072)}},
      {"mllm-9b", "DistTrain, table 2: MLLM-9B", {Llm(7e9, 32, 4096), Vision(0.63e9, 32, 1280), Generator()}},
      {"mllm-15b",
       "DistTrain, table 2: MLLM-15B",
       {Llm(13e9, 40, 5120), Vision(0.63e9, 32, 1280), Generator()}},
      {"mllm-72b",
       "DistTrain, table 2: MLLM-72B",
       {Llm(70e9, 80, 8192), Vision(0.63e9, 32, 1280), Generator()}},
      {"internvl-6+20b", "OmniBal: InternVL-Chat-1.5", {Llm(20e9, 48, 6144), Vision(6e9, 45, 3200, kTile)}},
      {"internvl-6+34b",
       "OmniBal: InternVL-Chat-1.5-Plus",
       {Llm(34e9, 60, 7168), Vision(6e9, 45, 3200, kTile)}},
      {"internvl3-2b", "DHP, table 5", {Llm(1.7e9, 28, 1536, 12, 2), Vision(0.3e9, 24, 1024, kTile)}},
      {"internvl2.5-4b", "DHP, table 5", {Llm(3.7e9, 36, 2048, 16, 8), Vision(0.3e9, 24, 1024, kTile)}},
      {"internvl3-8b", "DHP, table 5", {Llm(7.7e9, 28, 3584, 28, 4), Vision(0.3e9, 24, 1024, kTile)}},
      {"qwen3-vl-2b", "DHP, table 5", {Llm(1.6e9, 28, 2048, 16, 8), Vision(0.4e9, 24, 1024)}},
      {"qwen3-vl-4b", "DHP, table 5", {Llm(3.6e9, 36, 2560, 32, 8), Vision(0.4e9, 24, 1024)}},
      {"qwen3-vl-8b", "DHP, table 5", {Llm(7.6e9, 36, 4096, 32, 8), Vision(0.4e9, 27, 1152)}},
  };
  return models;
}

}  // namespace

const PhaseModel* TrainingModel::phase(const Phase& phase) const {
  for (const PhaseModel& model : phases) {
    if (model.phase == phase) return &model;
  }
  for (const PhaseModel& model : phases) {
    for (Medium medium : kItemMedia) {
      const bool same_kind = phase.is_generator() == model.phase.is_generator();
      if (same_kind && phase.takes(medium) && model.phase.takes(medium)) return &model;
    }
  }
  return nullptr;
}

const TrainingModel* FindTrainingModel(std::string_view name) { return reorder::FindByName(Models(), name); }

std::string TrainingModelNames() { return reorder::NamesOf(Models()); }

Cost ForwardFlops(const PhaseModel& model) {
  const double of_layer = (model.causal ? 2.0 : 4.0) * model.AttentionWidth(),
               stride = model.lengths_per_token;
  const uint32_t with_window = model.windowed_layers > 0 ? model.windowed_layers : model.layers;
  const uint32_t windowed = model.window > 0 ? std::min(with_window, model.layers) : 0;
  const double linear = 2 * model.ActiveParameters() + of_layer * windowed * model.window;
  return {.linear = linear / stride, .quadratic = of_layer * (model.layers - windowed) / (stride * stride)};
}

}  // namespace evenkeel::advise
