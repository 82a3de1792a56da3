// Adds up the time, waiting and memory of one planned step. step_model.h describes the model; the steps below
// follow its list in the same order.
#include "advise/step_model.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/pipeline/pipeline_model.h"

namespace evenkeel::advise {
namespace {

// The work of one rank in one microbatch.
struct Batch {
  double flops = 0;   // forward, with padding
  double useful = 0;  // forward, without padding
  uint64_t tokens = 0;
  uint64_t padded_tokens = 0;
};

class Batches {
 public:
  Batches(const Job& job, const Plan& plan, const PhasePlan& phase_plan, const PhaseModel& model)
      : plan_(phase_plan), model_(model), cost_(ForwardFlops(model)) {
    const PhaseSpec& spec = *job.phase(phase_plan.phase);
    for (size_t b = 0; b + 1 < phase_plan.begin.size(); ++b) {
      Batch& batch = batches_.emplace_back();
      uint64_t longest = 0, count = 0;
      for (uint32_t at = phase_plan.begin[b]; at < phase_plan.begin[b + 1]; ++at) {
        const uint32_t unit = phase_plan.order[at];
        const bool is_llm = phase_plan.phase == Phase::kLlm;
        const uint32_t length = is_llm ? plan.samples[unit].llm_length : plan.items[unit].lengths.cost_length;
        const bool dummy = !is_llm && plan.items[unit].sample == kDummy;
        batch.flops += cost_(length);
        if (!dummy) batch.useful += cost_(length), batch.tokens += length;
        batch.padded_tokens += length;
        longest = std::max<uint64_t>(longest, length);
        ++count;
      }
      if (spec.batching == Batching::kPadded) {
        batch.flops = static_cast<double>(count) * cost_(static_cast<double>(longest));
        batch.padded_tokens = count * longest;
      }
      if (phase_plan.phase == Phase::kLlm && batch.padded_tokens < job.microbatch.pad_to) {
        batch.flops += cost_.linear * static_cast<double>(job.microbatch.pad_to - batch.padded_tokens);
        batch.padded_tokens = job.microbatch.pad_to;
      }
    }
  }

  const Batch& at(size_t rank, size_t microbatch) const {
    return batches_[rank * plan_.num_microbatches + microbatch];
  }
  double FlopsOf(size_t rank) const {
    double flops = 0;
    for (size_t m = 0; m < plan_.num_microbatches; ++m) flops += at(rank, m).flops;
    return flops;
  }
  // FLOPs of the busiest rank. With a barrier after every microbatch, the sum of each microbatch's busiest
  // rank: nobody begins the next one earlier.
  double FlopsOfBusiest(bool barrier_per_microbatch) const {
    double sum = 0, busiest = 0;
    for (size_t m = 0; barrier_per_microbatch && m < plan_.num_microbatches; ++m) {
      double flops = 0;
      for (size_t r = 0; r < ranks(); ++r) flops = std::max(flops, at(r, m).flops);
      sum += flops;
    }
    for (size_t r = 0; r < ranks(); ++r) busiest = std::max(busiest, FlopsOf(r));
    return barrier_per_microbatch ? sum : busiest;
  }
  // The busiest rank of every microbatch, over the mean rank.
  double MaxOverMeanPerIndex() const {
    double all = 0;
    for (size_t r = 0; r < ranks(); ++r) all += FlopsOf(r);
    return all > 0 ? FlopsOfBusiest(/*barrier_per_microbatch=*/true) * static_cast<double>(ranks()) / all : 1;
  }
  // FLOPs of the busiest rank in this microbatch.
  double FlopsOfBusiest(size_t microbatch) const {
    double flops = 0;
    for (size_t r = 0; r < ranks(); ++r) flops = std::max(flops, at(r, microbatch).flops);
    return flops;
  }
  // The largest number of tokens in `window` consecutive microbatches of a rank.
  uint64_t TokensInARow(size_t rank, size_t window) const {
    uint64_t most = 0;
    for (size_t m = 0; m < plan_.num_microbatches; ++m) {
      uint64_t tokens = 0;
      for (size_t k = m; k < std::min<size_t>(m + window, plan_.num_microbatches); ++k) {
        tokens += at(rank, k).padded_tokens;
      }
      most = std::max(most, tokens);
    }
    return most;
  }

  size_t ranks() const { return plan_.ranks.size(); }
  const PhasePlan& plan() const { return plan_; }
  const PhaseModel& model() const { return model_; }
  const std::vector<Batch>& all() const { return batches_; }

 private:
  const PhasePlan& plan_;
  const PhaseModel& model_;
  const Cost cost_;
  std::vector<Batch> batches_;
};

class Step {
 public:
  Step(const Job& job, const Plan& plan, const TrainingModel& model, const Machine& machine)
      : job_(job),
        plan_(plan),
        model_(model),
        machine_(machine),
        speed_(machine.peak_flops * machine.gpus_per_stage),
        llm_(*job.phase(Phase::kLlm)),
        encoders_(EncodersOf(job)),
        pipeline_(job, llm_, encoders_, machine.recompute ? 1 : 0),
        without_recompute_(job, llm_, encoders_) {}

  absl::StatusOr<StepFigures> Run() {
    EVENKEEL_RETURN_IF_ERROR(CheckMachine(machine_));
    for (const PhasePlan& phase : plan_.phases) {
      const PhaseModel* of_phase = model_.phase(phase.phase);
      if (of_phase == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat("model ", model_.name, " has no phase ", std::string(PhaseName(phase.phase))));
      }
      batches_.emplace_back(job_, plan_, phase, *of_phase);
      MeasurePhase(batches_.back());
    }
    AddEncoders();
    EVENKEEL_RETURN_IF_ERROR(AddLlm());
    AddExchanges();
    MeasureWhole();
    MeasureMemory();
    return std::move(figures_);
  }

 private:
  static std::vector<const PhaseSpec*> EncodersOf(const Job& job) {
    std::vector<const PhaseSpec*> encoders;
    for (const PhaseSpec& spec : job.phases) {
      if (spec.phase != Phase::kLlm) encoders.push_back(&spec);
    }
    return encoders;
  }
  bool Pipelined() const { return pipeline_.num_stages() > 1; }
  // The encoder's place in the pipeline model; nullopt: the llm.
  std::optional<size_t> EncoderOf(const Phase& phase) const {
    for (size_t e = 0; e < encoders_.size(); ++e) {
      if (encoders_[e]->phase == phase) return e;
    }
    return std::nullopt;
  }
  std::optional<size_t> EncoderOf(const Batches& batches) const { return EncoderOf(batches.plan().phase); }
  bool InPipeline(const Batches& encoder) const {
    return Pipelined() && pipeline_.ColumnOfEncoder(*EncoderOf(encoder)).has_value();
  }
  // On GPUs of its own.
  bool IsApart(const Batches& batches) const {
    return !IsLlm(batches) && AreApart(*encoders_[*EncoderOf(batches)], llm_);
  }
  // GPUs of one rank, all of its stages.
  double GpusOf(const Batches& batches) const {
    return static_cast<double>(machine_.gpus_per_stage) * (IsApart(batches) ? 1 : job_.pipeline_stages);
  }
  // A forward with its backward.
  double PassesOf(const Batches& batches) const { return pipeline_.Seconds(EncoderOf(batches), 1); }
  bool IsFrozen(const Batches& batches) const {
    return job_.pipeline.PassOf(batches.plan().phase.name()).frozen;
  }
  static bool IsLlm(const Batches& batches) { return batches.plan().phase == Phase::kLlm; }
  const Batches& LlmBatches() const {
    return *std::find_if(batches_.begin(), batches_.end(), [](const Batches& b) { return IsLlm(b); });
  }

  void MeasurePhase(const Batches& batches) {
    PhaseFigures& phase = figures_.phases.emplace_back();
    phase.phase = batches.plan().phase;
    // Seconds of a rank as if it never waited. In a pipeline a rank's work is spread over its stages.
    double sum = 0, largest = 0;
    for (size_t r = 0; r < batches.ranks(); ++r) {
      const double seconds = PassesOf(batches) * batches.FlopsOf(r) / (machine_.peak_flops * GpusOf(batches));
      phase.seconds.push_back(seconds);
      sum += seconds;
      largest = std::max(largest, seconds);
    }
    if (sum > 0) phase.max_over_mean = largest * static_cast<double>(batches.ranks()) / sum;
    phase.index_max_over_mean = batches.MaxOverMeanPerIndex();
    // Tokens with and without padding, for the share of padding.
    uint64_t tokens = 0, padded = 0;
    for (const Batch& batch : batches.all()) {
      tokens += batch.tokens;
      padded += batch.padded_tokens;
      useful_ += without_recompute_.Seconds(EncoderOf(batches), batch.useful);
      computed_ += pipeline_.Seconds(EncoderOf(batches), batch.flops);
    }
    if (padded > 0) phase.pad_ratio = 1 - static_cast<double>(tokens) / static_cast<double>(padded);
    tokens_ += tokens;
    padded_tokens_ += padded;
  }

  // Encoders outside the pipeline run before the llm, and all GPUs of a rank work on its items. Those that an interleaved
  // schedule hides run at the same time as the llm.
  void AddEncoders() {
    for (const Batches& batches : batches_) {
      if (IsLlm(batches) || InPipeline(batches)) continue;
      const double seconds = PassesOf(batches) * batches.FlopsOfBusiest(/*barrier_per_microbatch=*/true) /
                             (machine_.peak_flops * GpusOf(batches));
      if (IsHidden(batches)) {
        hidden_seconds_ = std::max(hidden_seconds_, seconds);
        figures_.iteration_seconds += seconds / plan_.num_microbatches;  // before the llm begins
      } else {
        figures_.iteration_seconds += seconds;
      }
    }
  }
  bool IsHidden(const Batches& encoder) const {
    return Pipelined() && IsApart(encoder) &&
           encoders_[*EncoderOf(encoder)]->runs == Runs::kOncePerMicrobatch;
  }

  absl::Status AddLlm() {
    const Batches& llm = LlmBatches();
    // Without stages, ranks wait for each other once, or after every microbatch where an encoder exchanges
    // rows then.
    if (!Pipelined()) {
      const bool barriers = std::any_of(job_.phases.begin(), job_.phases.end(), [](const PhaseSpec& spec) {
        return spec.phase != Phase::kLlm && spec.runs == Runs::kOncePerMicrobatch;
      });
      figures_.iteration_seconds += PassesOf(llm) * llm.FlopsOfBusiest(barriers) / speed_;
      return absl::OkStatus();
    }
    // With stages, every rank is a pipeline of its own, and the step ends with the slowest one.
    double slowest = -1;
    for (size_t r = 0; r < llm.ranks(); ++r) {
      EVENKEEL_ASSIGN_OR_RETURN(reorder::PipelineTimeline timeline, Pipeline(llm, r));
      figures_.pipeline_bubble_share += timeline.bubble_share / static_cast<double>(llm.ranks());
      if (timeline.iteration_time <= slowest) continue;
      slowest = timeline.iteration_time;
      figures_.slowest = std::move(timeline);
    }
    figures_.iteration_seconds += std::max(slowest, hidden_seconds_);
    return absl::OkStatus();
  }

  // Simulates the pipeline of one llm rank. An encoder that runs in the pipeline adds its time to the same
  // microbatch of its rank; an encoder without this rank adds that of its busiest rank, for which the llm has
  // to wait.
  absl::StatusOr<reorder::PipelineTimeline> Pipeline(const Batches& llm, size_t rank) const {
    const uint32_t microbatches = plan_.num_microbatches;
    std::vector<std::vector<double>> seconds(pipeline_.num_columns(), std::vector<double>(microbatches, 0));
    for (uint32_t m = 0; m < microbatches; ++m) {
      seconds[0][m] = llm.at(rank, m).flops / speed_;
      for (const Batches& batches : batches_) {
        if (IsLlm(batches) || !InPipeline(batches)) continue;
        const auto& ranks = batches.plan().ranks;
        const auto own = std::find(ranks.begin(), ranks.end(), llm.plan().ranks[rank]);
        seconds[*pipeline_.ColumnOfEncoder(*EncoderOf(batches))][m] +=
            (own == ranks.end() ? batches.FlopsOfBusiest(size_t{m})
                                : batches.at(static_cast<size_t>(own - ranks.begin()), m).flops) /
            speed_;
      }
    }
    const reorder::PipelineProblem problem = pipeline_.Problem(seconds);
    EVENKEEL_RETURN_IF_ERROR(reorder::CheckPipeline(problem));
    std::vector<uint32_t> order(microbatches);
    std::iota(order.begin(), order.end(), 0u);
    return reorder::SimulatePipeline(problem, order);
  }

  void AddExchanges() {
    // A rank sends and receives at the same time, so the longer of the two counts. Gradients take the same
    // way back: hence twice.
    const double row_bytes = kBytesPerValue * model_.phase(Phase::kLlm)->hidden;
    std::map<Phase, double> overlapped;  // the longest exchange of each encoder with a stage of its own
    for (const Route& route : plan_.routes) {
      double slowest = 0;
      for (size_t r = 0; r < route.ranks.size(); ++r) {
        double sends = 0, receives = 0;
        for (const RouteSegment& segment : route.per_rank[r].send) {
          const bool inter = SecondsOf(route, r, segment, row_bytes, sends);
          if (inter) figures_.inter_node_bytes += row_bytes * static_cast<double>(segment.rows);
        }
        for (const RouteSegment& segment : route.per_rank[r].receive) {
          SecondsOf(route, r, segment, row_bytes, receives);
        }
        slowest = std::max({slowest, sends, receives});
      }
      if (IsOverlapped(route.from)) {
        overlapped[route.from] = std::max(overlapped[route.from], 2 * slowest);
      } else {
        figures_.exchange_seconds += 2 * slowest;
      }
    }
    for (const auto& [phase, seconds] : overlapped) figures_.exchange_seconds += seconds;
    figures_.iteration_seconds += figures_.exchange_seconds;
  }

  // Rows of an encoder on GPUs of its own travel while other microbatches are computed: one exchange is waited for.
  bool IsOverlapped(const Phase& phase) const {
    const size_t e = *EncoderOf(phase);
    return Pipelined() && encoders_[e]->runs == Runs::kOncePerMicrobatch && AreApart(*encoders_[e], llm_);
  }

  // Adds the time of one segment to `seconds`. Returns whether the segment crosses nodes.
  bool SecondsOf(const Route& route, size_t rank, const RouteSegment& segment, double row_bytes,
                 double& seconds) const {
    if (segment.peer == rank) return false;
    const bool inter = job_.NodeOf(route.ranks[rank]) != job_.NodeOf(route.ranks[segment.peer]);
    seconds += row_bytes * static_cast<double>(segment.rows) /
               (inter ? machine_.inter_node_bandwidth : machine_.intra_node_bandwidth);
    return inter;
  }

  void MeasureWhole() {
    // Capacity: FLOPs of all GPUs at their peak for the whole step. A rank of the llm counts once per stage.
    std::map<uint32_t, double> gpus_of_rank;
    for (const Batches& batches : batches_) {
      for (uint32_t rank : batches.plan().ranks)
        gpus_of_rank[rank] = std::max(gpus_of_rank[rank], GpusOf(batches));
    }
    double gpus = 0;
    for (const auto& [rank, of_rank] : gpus_of_rank) gpus += of_rank;
    figures_.gpus = gpus;
    const double capacity = figures_.iteration_seconds * gpus * machine_.peak_flops;
    if (padded_tokens_ > 0) {
      figures_.pad_ratio = 1 - static_cast<double>(tokens_) / static_cast<double>(padded_tokens_);
    }
    if (capacity <= 0) return;
    figures_.bubble_share = std::max(0.0, 1 - computed_ / capacity);
    figures_.mfu = useful_ / capacity;
  }

  // Memory of the fullest GPU: model states plus activations, by the model's formulas (step_model.h).
  void MeasureMemory() {
    std::map<uint32_t, double> held;  // bytes by global rank, on one of its GPUs
    for (const Batches& batches : batches_) {
      const PhaseModel& model = batches.model();
      const bool staged =
          job_.pipeline_stages > 1 && !IsApart(batches) && (IsLlm(batches) || InPipeline(batches));
      const double ranks = static_cast<double>(batches.ranks()), gpus = GpusOf(batches);
      // window: consecutive microbatches whose activations are in memory at the same time. layers: layers of
      // the model on one GPU, and those whose activations are kept. split: GPUs that share one layer.
      const size_t window = WindowOf(batches, staged);
      const double layers = staged ? static_cast<double>(model.layers) / job_.pipeline_stages : model.layers;
      const double split = staged ? machine_.gpus_per_stage : gpus;
      const double per_parameter = BytesPerParameter(batches, staged, ranks);
      for (size_t r = 0; r < batches.ranks(); ++r) {
        const double all = static_cast<double>(batches.TokensInARow(r, window)) / model.lengths_per_token;
        const double one = static_cast<double>(batches.TokensInARow(r, 1)) / model.lengths_per_token;
        const double per_hidden = machine_.recompute
                                      ? kBytesPerValue * layers * all + kLayerActivationBytes * one
                                      : kLayerActivationBytes * layers * all;
        held[batches.plan().ranks[r]] +=
            model.parameters * per_parameter / gpus + per_hidden * model.hidden / split;
      }
    }
    for (const auto& [rank, bytes] : held) {
      figures_.peak_memory_bytes = std::max(figures_.peak_memory_bytes, bytes);
    }
  }

  size_t WindowOf(const Batches& batches, bool staged) const {
    if (!IsLlm(batches) && PassesOf(batches) <= 1) return 1;  // no backward
    // A generator goes back as soon as it has gone forward.
    if (!IsLlm(batches) && IsApart(batches) && InPipeline(batches))
      return pipeline_.IsTail(*EncoderOf(batches)) ? 1 : pipeline_.num_stages();
    return staged ? job_.pipeline_stages : IsLlm(batches) ? 1 : plan_.num_microbatches;
  }
  // Weights that are not trained have neither gradients nor an optimizer's states.
  double BytesPerParameter(const Batches& batches, bool staged, double ranks) const {
    if (IsFrozen(batches)) return staged ? kBytesPerValue : kBytesPerValue / ranks;
    return staged ? kStateBytes - kOptimizerBytes + kOptimizerBytes / ranks : kStateBytes / ranks;
  }

  const Job& job_;
  const Plan& plan_;
  const TrainingModel& model_;
  const Machine& machine_;
  const double speed_;  // FLOPs per second of a stage, or of a rank without stages
  const PhaseSpec& llm_;
  const std::vector<const PhaseSpec*> encoders_;
  const reorder::PipelineModel pipeline_, without_recompute_;
  std::vector<Batches> batches_;
  double useful_ = 0, computed_ = 0;  // FLOPs, forward and backward
  double hidden_seconds_ = 0;         // of encoders that an interleaved schedule of the llm hides
  uint64_t tokens_ = 0, padded_tokens_ = 0;
  StepFigures figures_;
};

}  // namespace

absl::StatusOr<StepFigures> ModelStep(const Job& job, const Plan& plan, const TrainingModel& model,
                                      const Machine& machine) {
  return Step(job, plan, model, machine).Run();
}

absl::StatusOr<Job> WithCostsOf(const TrainingModel& model, Job job) {
  EVENKEEL_RETURN_IF_ERROR(CheckPhases(job, model));
  for (PhaseSpec& spec : job.phases) spec.cost = ForwardFlops(*model.phase(spec.phase));
  return job;
}

absl::Status CheckMachine(const Machine& machine) {
  if (machine.peak_flops > 0 && machine.intra_node_bandwidth > 0 && machine.inter_node_bandwidth > 0 &&
      machine.memory_bytes > 0 && machine.gpus_per_stage > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "the machine's FLOP rate, bandwidths, memory and GPUs must be greater than 0");
}

absl::Status CheckPhases(const Job& job, const TrainingModel& model) {
  for (const PhaseSpec& spec : job.phases) {
    if (model.phase(spec.phase) != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name, " has no phase ", std::string(PhaseName(spec.phase)),
                     ", which the job or trace has; models: ", TrainingModelNames()));
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::advise
