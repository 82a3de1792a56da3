// Computes passes, bytes and pipelines of one rank, for the model of context parallelism.
#include "advise/degree_costs.h"

#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "advise/step_model.h"
#include "core/status.h"

namespace evenkeel::advise {

DegreeCosts::DegreeCosts(const Job& job, const TrainingModel& model, const Machine& machine)
    : job_(LlmAlone(job)),
      model_(model),
      machine_(machine),
      encoders_(EncodersOf(job_)),
      pipeline_(job_, *job_.phase(Phase::kLlm), encoders_, machine.recompute ? 1 : 0),
      without_recompute_(job_, *job_.phase(Phase::kLlm), encoders_) {}

Job DegreeCosts::LlmAlone(const Job& job) {
  Job alone;
  alone.phases = job.phases;
  alone.pipeline = job.pipeline;
  alone.pipeline_stages = job.pipeline_stages;
  alone.virtual_stages = job.virtual_stages;
  for (PhaseSpec& spec : alone.phases) spec.runs = Runs::kOncePerStep;
  return alone;
}

std::vector<const PhaseSpec*> DegreeCosts::EncodersOf(const Job& job) {
  std::vector<const PhaseSpec*> encoders;
  for (const PhaseSpec& spec : job.phases) {
    if (spec.phase != Phase::kLlm) encoders.push_back(&spec);
  }
  return encoders;
}

absl::Status DegreeCosts::Check() const {
  for (const auto& chunk : job_.pipeline.chunks) {
    for (const ChunkPart& part : chunk) {
      if (part.phase == Phase::kLlm.name()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "pipeline.chunks: with context parallelism encoders are modelled before the llm, and a chunk has ",
          part.phase, "; leave the chunks out, or give those of the llm alone"));
    }
  }
  return absl::OkStatus();
}

double DegreeCosts::Speed() const { return machine_.peak_flops * machine_.gpus_per_stage * stages(); }

double DegreeCosts::PassesOf(const Phase& phase, const reorder::PipelineModel& pipeline) const {
  for (size_t e = 0; e < encoders_.size(); ++e) {
    if (encoders_[e]->phase == phase) return pipeline.Seconds(e, 1);
  }
  return pipeline.Seconds(std::nullopt, 1);
}

double DegreeCosts::UsefulShare(const Phase& phase) const {
  return PassesOf(phase, without_recompute_) / PassesOf(phase, pipeline_);
}

// The first of s stages holds s microbatches, each with its share of the layers: as much as one microbatch in all layers.
double DegreeCosts::BytesPerToken() const {
  const PhaseModel& llm = Llm();
  const double layers = machine_.recompute ? kBytesPerValue * llm.layers + kLayerActivationBytes
                                           : kLayerActivationBytes * llm.layers;
  return layers * llm.hidden / machine_.gpus_per_stage;
}

double DegreeCosts::RingBytesPerToken() const {
  return 2 * kBytesPerValue * Llm().layers * Llm().KeyWidth() / machine_.gpus_per_stage;
}

double DegreeCosts::UlyssesBytesPerToken() const {
  return 2 * kBytesPerValue * Llm().layers * (Llm().KeyWidth() + Llm().AttentionWidth()) /
         machine_.gpus_per_stage;
}

double DegreeCosts::ModelStates(double replicated) const {
  const double ranks = static_cast<double>(job_.phase(Phase::kLlm)->ranks.size());
  double trained = 0, frozen = 0;
  for (const PhaseSpec& spec : job_.phases) {
    (job_.pipeline.PassOf(spec.phase.name()).frozen ? frozen : trained) +=
        model_.phase(spec.phase)->parameters;
  }
  const double bytes = trained * (replicated + (kStateBytes - replicated) / ranks) +
                       frozen * (replicated > 0 ? kBytesPerValue : kBytesPerValue / ranks);
  return bytes / machine_.gpus_per_stage / stages();
}

absl::StatusOr<reorder::PipelineTimeline> DegreeCosts::RunPipeline(std::span<const double> seconds) const {
  const double passes = PassesOf(Phase::kLlm) / stages();
  std::vector<std::vector<double>> costs(1);
  for (double of_microbatch : seconds) costs[0].push_back(of_microbatch / passes);
  if (job_.virtual_stages > 1) costs[0].resize((costs[0].size() + stages() - 1) / stages() * stages());
  const reorder::PipelineProblem problem = pipeline_.Problem(costs);
  EVENKEEL_RETURN_IF_ERROR(reorder::CheckPipeline(problem));
  std::vector<uint32_t> order(costs[0].size());
  std::iota(order.begin(), order.end(), 0u);
  return reorder::SimulatePipeline(problem, order);
}

}  // namespace evenkeel::advise
