// Simulates a step with context parallelism, with one degree for a whole run (RunInTurn) or as a plan of
// context_parallel.h assigns it (Run). step_model_degrees.h describes the model.
#include "advise/step_model_degrees.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "advise/degree_costs.h"
#include "advise/hybrid_groups.h"
#include "core/status.h"
#include "reorder/by_name.h"
#include "reorder/context_parallel/waves.h"
#include "reorder/item_phases.h"

namespace evenkeel::advise {
namespace {

constexpr DegreePolicy kPolicies[] = {
    {.name = "megatron",
     .summary = "Megatron-LM: one power of two for all steps, the best that holds the longest sequence; "
                "sequences assigned in turn"},
    {.name = "megatron_hybrid",
     .summary =
         "Megatron-Core's hybrid context parallelism: for every sequence the power of two that its length "
         "needs, in rounds of level work",
     .hybrid = true},
    {.name = "deepspeed",
     .summary = "DeepSpeed: the same with ZeRO-3 and Ulysses' all-to-all",
     .ulysses = true},
    {.name = "static_power_of_two",
     .summary =
         "with hindsight: the best power of two for every step, sequences to the group with the least to "
         "do",
     .algorithm = "static_power_of_two"},
    {.name = "static", .summary = "with hindsight: the same with any degree", .algorithm = "static"},
    {.name = "dhp_powers_of_two",
     .summary = "DHP's packing and dynamic programme, degrees that are powers of two",
     .algorithm = "dhp",
     .powers_of_two = true},
    {.name = "dhp", .summary = "DHP: a degree for every group", .algorithm = "dhp"},
    {.name = "regroup_pool",
     .summary = "ours, in aligned groups of powers of two from a pool of 64, as a stream has them",
     .algorithm = "regroup",
     .pool = 64},
    {.name = "persistent",
     .summary =
         "Megatron-LM with groups of several sizes that stay the same for a step, from such a pool: no "
         "barrier between microbatches",
     .algorithm = reorder::kPersistent,
     .pool = 64},
    {.name = "regroup",
     .summary = "ours: groups that follow from the time they take",
     .algorithm = "regroup"},
};

// When ranks wait for each other.
enum class Meet : uint8_t { kEveryMicrobatch, kEveryRound, kAtTheEnd };

// The llm's ranks by node, from which the groups of one microbatch take theirs.
class Nodes {
 public:
  explicit Nodes(const Job& job) {
    const std::vector<uint32_t>& ranks = job.phase(Phase::kLlm)->ranks;
    for (uint32_t r = 0; r < ranks.size(); ++r) free_[job.NodeOf(ranks[r])].push_back(r);
  }

  struct Taken {
    std::vector<uint32_t> ranks;
    uint32_t crossings = 0;  // nodes in the ring; 0: all ranks are on one node
  };
  // Ranks first to first + degree - 1.
  static Taken TakenFrom(const Job& job, uint32_t first, uint32_t degree) {
    const std::vector<uint32_t>& ranks = job.phase(Phase::kLlm)->ranks;
    Taken taken;
    std::set<uint32_t> nodes;
    for (uint32_t r = first; r < first + degree; ++r) {
      taken.ranks.push_back(r);
      nodes.insert(job.NodeOf(ranks[r]));
    }
    taken.crossings = nodes.size() > 1 ? static_cast<uint32_t>(nodes.size()) : 0;
    return taken;
  }
  // Takes from the fullest node that has room (best fit); if no node has room, from the nodes in their order.
  Taken Take(uint32_t degree) {
    std::vector<uint32_t>* fullest = nullptr;
    for (auto& [node, ranks] : free_) {
      if (ranks.size() >= degree && (fullest == nullptr || ranks.size() < fullest->size())) fullest = &ranks;
    }
    Taken taken;
    if (fullest != nullptr) {
      Move(*fullest, degree, taken.ranks);
      return taken;
    }
    for (auto& [node, ranks] : free_) {
      const uint32_t missing = degree - static_cast<uint32_t>(taken.ranks.size());
      const uint32_t here = std::min<uint32_t>(missing, static_cast<uint32_t>(ranks.size()));
      taken.crossings += here > 0;
      Move(ranks, here, taken.ranks);
    }
    return taken;
  }

 private:
  static void Move(std::vector<uint32_t>& from, uint32_t count, std::vector<uint32_t>& to) {
    to.insert(to.end(), from.begin(), from.begin() + count);
    from.erase(from.begin(), from.begin() + count);
  }

  std::map<uint32_t, std::vector<uint32_t>> free_;  // by node, ascending
};

class Step {
 public:
  Step(const Job& job, const StepSamples& samples, const TrainingModel& model, const Machine& machine,
       const reorder::ContextParallelInput& input)
      : job_(job),
        samples_(samples),
        model_(model),
        machine_(machine),
        costs_(job, model, machine),
        input_(input),
        seconds_(input.ranks) {}

  absl::StatusOr<StepFigures> Run(const reorder::ContextParallelPlan& plan) {
    AddEncoders();
    for (const reorder::ContextParallelMicrobatch& microbatch : plan.microbatches) AddMicrobatch(microbatch);
    return Finish(Meet::kEveryMicrobatch);
  }

  // Megatron-Core's hybrid degrees: a group runs one sequence at a time, and all ranks meet after a round.
  absl::StatusOr<StepFigures> RunRounds(const std::vector<HybridRound>& rounds) {
    AddEncoders();
    for (const HybridRound& round : rounds) {
      const double start = figures_.iteration_seconds, exchanged = figures_.exchange_seconds;
      for (const HybridGroup& group : round) {
        const Nodes::Taken taken = Nodes::TakenFrom(job_, group.first_rank, group.degree);
        double end = start, waits = exchanged;
        for (uint32_t sequence : group.sequences) {
          const GroupTime time = AddGroup(taken, {sequence}, microbatches_, end);
          end += time.seconds;
          waits += time.waits;
        }
        EndsAt(end, waits);
      }
      ++microbatches_;
    }
    return Finish(Meet::kEveryRound);
  }

  // Groups that stay the same run their waves one after the other, and wait for each other at the end.
  absl::StatusOr<StepFigures> RunPersistent(const std::vector<reorder::Wave>& waves) {
    AddEncoders();
    std::vector<InTurn> ends(input_.ranks, {.end = figures_.iteration_seconds});  // by first rank
    for (const reorder::Wave& wave : waves) {
      for (const reorder::PlacedGroup& group : wave) {
        if (group.sequences.empty()) continue;
        InTurn& line = ends[group.ranks.first];
        const Nodes::Taken taken = Nodes::TakenFrom(job_, group.ranks.first, group.ranks.size);
        const GroupTime time = AddGroup(taken, group.sequences, microbatches_, line.end);
        line.end += time.seconds;
        line.waits += time.waits;
        EndsAt(line.end, line.waits);
      }
      ++microbatches_;
    }
    return Finish(Meet::kAtTheEnd);
  }

  // Trainers without a planner: groups of one degree, group g has sequences g, g + groups, ..., and runs as
  // many at once as its memory holds.
  absl::StatusOr<StepFigures> RunInTurn(uint32_t degree, bool ulysses) {
    AddEncoders();
    ulysses_ = ulysses;
    Nodes nodes(job_);
    std::vector<InTurn> groups(input_.ranks / degree);
    for (size_t g = 0; g < groups.size(); ++g) {
      groups[g] = {.ranks = nodes.Take(degree), .next = g, .end = figures_.iteration_seconds};
    }
    for (bool more = !input_.sequences.empty(); more; ++microbatches_) {
      more = false;
      const double barrier = figures_.iteration_seconds, exchanged = figures_.exchange_seconds;
      for (InTurn& group : groups) {
        const std::vector<uint32_t> together = NextOf(group, groups.size(), degree);
        if (together.empty()) continue;
        // ZeRO-3 gathers weights layer by layer, so all groups begin a microbatch together. With Megatron-LM
        // a group waits for the others only at the end of the step.
        if (ulysses) group.end = barrier, group.waits = exchanged;
        const GroupTime time = AddGroup(group.ranks, together, microbatches_, group.end);
        group.end += time.seconds;
        group.waits += time.waits;
        EndsAt(group.end, group.waits);
        more |= group.next < input_.sequences.size();
      }
    }
    return Finish(ulysses ? Meet::kEveryMicrobatch : Meet::kAtTheEnd);
  }

 private:
  struct InTurn {
    Nodes::Taken ranks;
    size_t next = 0;  // its next sequence
    double end = 0, waits = 0;
  };

  // The sequences that a group runs in its next microbatch: as many as fit into its memory, at least one.
  std::vector<uint32_t> NextOf(InTurn& group, size_t groups, uint32_t degree) const {
    const double room = (input_.memory_per_rank - input_.model_states) * degree;
    std::vector<uint32_t> together;
    double held = 0;
    for (; group.next < input_.sequences.size(); group.next += groups) {
      held += input_.sequences[group.next].tokens * input_.memory_per_token;
      if (!together.empty() && held > room) break;
      together.push_back(static_cast<uint32_t>(group.next));
    }
    return together;
  }

  // Encoders are spread evenly over all ranks before the llm begins, for every policy alike.
  void AddEncoders() {
    std::vector<Phase> phases;
    for (const PhaseSpec& spec : job_.phases) phases.push_back(spec.phase);
    const reorder::ItemPhases table(phases);
    std::vector<double> flops(phases.size(), 0.0);
    for (const SampleLengths& lengths : samples_.lengths) {
      for (const SampleItem& item : lengths.items) {
        const std::optional<size_t> p = table.Find(item);
        if (p.has_value()) flops[*p] += ForwardFlops(*model_.phase(phases[*p]))(item.lengths.cost_length);
      }
    }
    for (size_t p = 0; p < phases.size(); ++p) {
      const PhaseSpec& spec = job_.phases[p];
      PhaseFigures& phase = figures_.phases.emplace_back();
      phase.phase = spec.phase;
      if (spec.phase == Phase::kLlm) continue;
      const double seconds = costs_.PassesOf(spec.phase) * flops[p] / costs_.Speed() / input_.ranks;
      phase.seconds.assign(input_.ranks, seconds);
      figures_.iteration_seconds += seconds;
      worked_ += seconds * input_.ranks;
      useful_ += costs_.UsefulShare(spec.phase) * seconds * input_.ranks;
    }
    llm_begins_ = figures_.iteration_seconds;
  }

  void AddMicrobatch(const reorder::ContextParallelMicrobatch& microbatch) {
    Nodes nodes(job_);
    const double start = figures_.iteration_seconds, exchanged = figures_.exchange_seconds;
    for (const reorder::ContextParallelGroup& group : microbatch.groups) {  // the largest first
      const GroupTime time = AddGroup(nodes.Take(group.degree), group.sequences, microbatches_, start);
      EndsAt(start + time.seconds, exchanged + time.waits);
    }
    ++microbatches_;
  }

  // The step lasts until the last group ends.
  void EndsAt(double end, double waits) {
    if (end <= figures_.iteration_seconds) return;
    figures_.iteration_seconds = end;
    figures_.exchange_seconds = waits;
  }

  struct GroupTime {
    double seconds = 0;
    double waits = 0;  // part of it: waiting for the exchange
  };
  // Time, traffic and memory of one group. A ring sends keys and values while attention computes, so only
  // what attention does not cover is waiting. The all-to-all of Ulysses is covered by nothing. With stages, times are
  // those of a rank whose stages all work all the time.
  GroupTime AddGroup(const Nodes::Taken& taken, const std::vector<uint32_t>& sequences, uint32_t microbatch,
                     double start) {
    const uint32_t degree = static_cast<uint32_t>(taken.ranks.size());
    double work = 0, attention = 0;
    uint64_t tokens = 0;
    for (uint32_t s : sequences) {
      const double n = input_.sequences[s].tokens;
      attention += input_.cost.attention * n * n;
      work += input_.cost.attention * n * n + input_.cost.linear * n;
      tokens += input_.sequences[s].tokens;
    }
    const double bytes = ExchangedBytes(tokens, degree), of_stage = bytes / costs_.stages();
    const double waits = ulysses_
                             ? costs_.UlyssesPasses() * of_stage / UlyssesBandwidth(taken)
                             : std::max(0.0, costs_.PassesOf(Phase::kLlm) * of_stage / RingBandwidth(taken) -
                                                 attention / degree);
    const double compute = (work + attention * (HeadsOverMean(degree) - 1)) / degree;
    worked_ += work;
    useful_ += costs_.UsefulShare(Phase::kLlm) * work;
    for (uint32_t r : taken.ranks) seconds_[r] += compute;
    const double senders = ulysses_ ? degree * LeavesANode(taken) : taken.crossings;
    figures_.inter_node_bytes += bytes * senders * machine_.gpus_per_stage;
    const double held = static_cast<double>(tokens) / degree * input_.memory_per_token;
    figures_.peak_memory_bytes = std::max(figures_.peak_memory_bytes, input_.model_states + held);
    figures_.groups.push_back({taken.ranks, microbatch, tokens, start, start + compute + waits});
    return {compute + waits, waits};
  }

  // Bytes that a rank's GPUs of one tensor parallel index send in one forward. Ring: of the group's d chunks, all but one.
  // All-to-all: of its own chunk, all but its own share.
  double ExchangedBytes(uint64_t tokens, uint32_t degree) const {
    const double each = ulysses_ ? costs_.UlyssesBytesPerToken() / degree : costs_.RingBytesPerToken();
    return each * static_cast<double>(tokens) * (degree - 1) / degree;
  }
  double RingBandwidth(const Nodes::Taken& taken) const {
    return taken.crossings > 0 ? machine_.inter_node_bandwidth : machine_.intra_node_bandwidth;
  }
  // The share of the all-to-all that leaves the node, as if the group's ranks were spread evenly over its
  // nodes.
  static double LeavesANode(const Nodes::Taken& taken) {
    const double degree = static_cast<double>(taken.ranks.size());
    return taken.crossings == 0 ? 0 : (degree - degree / taken.crossings) / (degree - 1);
  }
  // Ulysses gives whole heads to ranks: the largest share of a rank over the mean.
  double HeadsOverMean(uint32_t degree) const {
    const uint32_t heads = model_.phase(Phase::kLlm)->heads;
    if (!ulysses_ || heads == 0) return 1;
    return static_cast<double>((heads + degree - 1) / degree) * degree / heads;
  }
  // Traffic inside and between nodes flows at the same time; the slower one decides.
  double UlyssesBandwidth(const Nodes::Taken& taken) const {
    const double leaves = LeavesANode(taken);
    return 1 / std::max(leaves / machine_.inter_node_bandwidth, (1 - leaves) / machine_.intra_node_bandwidth);
  }

  // With stages every group is a pipeline. The times so far are those without filling and draining it; here groups
  // begin and end as the pipelines' microbatches do. Ranks that meet after every microbatch are one pipeline, whose
  // microbatches take as long as their slowest groups.
  absl::Status AddPipelines(Meet meet) {
    const uint32_t rounds = meet == Meet::kEveryRound ? microbatches_ : 1;
    double begin = llm_begins_, idle = 0;  // of the mean rank, in the schedules alone
    for (uint32_t round = 0; round < rounds; ++round) {
      std::map<std::vector<uint32_t>, std::vector<Microbatch>> lines;  // by ranks; or one of all
      for (GroupFigures& group : figures_.groups) {
        if (meet == Meet::kEveryRound && group.microbatch != round) continue;
        std::vector<Microbatch>& line =
            lines[meet == Meet::kEveryMicrobatch ? std::vector<uint32_t>() : group.ranks];
        if (meet != Meet::kEveryMicrobatch || line.size() <= group.microbatch) line.emplace_back();
        line.back().seconds = std::max(line.back().seconds, group.end - group.start);
        line.back().groups.push_back(&group);
      }
      double end = begin, idle_share = 0;
      for (const auto& [ranks, line] : lines) {
        EVENKEEL_ASSIGN_OR_RETURN(reorder::PipelineTimeline timeline, Simulated(line, begin));
        const double share = ranks.empty() ? 1 : static_cast<double>(ranks.size()) / input_.ranks;
        idle_share += share * timeline.bubble_share;
        end = std::max(end, begin + timeline.iteration_time);
        if (timeline.iteration_time > figures_.slowest.iteration_time) figures_.slowest = std::move(timeline);
      }
      idle += idle_share * (end - begin);
      begin = end;
    }
    figures_.iteration_seconds = begin;
    if (begin > llm_begins_) figures_.pipeline_bubble_share = idle / (begin - llm_begins_);
    return absl::OkStatus();
  }

  struct Microbatch {
    double seconds = 0;
    std::vector<GroupFigures*> groups;
  };
  // Simulates one pipeline that begins at `begin`, and sets when its groups begin and end.
  absl::StatusOr<reorder::PipelineTimeline> Simulated(const std::vector<Microbatch>& line,
                                                      double begin) const {
    std::vector<double> seconds;
    for (const Microbatch& microbatch : line) seconds.push_back(microbatch.seconds);
    EVENKEEL_ASSIGN_OR_RETURN(reorder::PipelineTimeline timeline, costs_.RunPipeline(seconds));
    std::vector<std::pair<double, double>> spans(line.size(), {INFINITY, 0});
    for (const reorder::PipelineOp& op : timeline.ops) {
      if (op.microbatch >= line.size()) continue;  // empty ones at the end
      auto& [start, end] = spans[op.microbatch];
      start = std::min(start, op.start), end = std::max(end, op.end);
    }
    for (size_t m = 0; m < line.size(); ++m) {
      for (GroupFigures* group : line[m].groups) {
        group->start = begin + spans[m].first;
        group->end = begin + spans[m].second;
      }
    }
    return timeline;
  }

  // The figures of the whole step. `worked_` contains recomputation, MFU does not.
  absl::StatusOr<StepFigures> Finish(Meet meet) {
    if (costs_.stages() > 1) EVENKEEL_RETURN_IF_ERROR(AddPipelines(meet));
    PhaseFigures& llm = *std::find_if(figures_.phases.begin(), figures_.phases.end(),
                                      [](const PhaseFigures& phase) { return phase.phase == Phase::kLlm; });
    double sum = 0, largest = 0;
    for (double seconds : seconds_) sum += seconds, largest = std::max(largest, seconds);
    if (sum > 0) llm.max_over_mean = largest * input_.ranks / sum;
    llm.seconds = std::move(seconds_);
    const double capacity = figures_.iteration_seconds * input_.ranks;
    if (!(capacity > 0)) return std::move(figures_);
    figures_.bubble_share = std::max(0.0, 1 - worked_ / capacity);
    figures_.mfu = useful_ / capacity;
    return std::move(figures_);
  }

  const Job& job_;
  const StepSamples& samples_;
  const TrainingModel& model_;
  const Machine& machine_;
  const DegreeCosts costs_;
  const reorder::ContextParallelInput& input_;
  std::vector<double> seconds_;  // [ranks] of the llm, without waiting
  double worked_ = 0;            // seconds of all ranks, without waiting
  double useful_ = 0;            // the same, without recomputation
  double llm_begins_ = 0;        // when all encoders have ended
  uint32_t microbatches_ = 0;
  bool ulysses_ = false;
  StepFigures figures_;
};

// The number of llm ranks on the node that has the fewest.
uint32_t SmallestNode(const Job& job) {
  std::map<uint32_t, uint32_t> ranks;
  for (uint32_t rank : job.phase(Phase::kLlm)->ranks) ++ranks[job.NodeOf(rank)];
  uint32_t fewest = ~0u;
  for (const auto& [node, count] : ranks) fewest = std::min(fewest, count);
  return fewest;
}

// Tokens that fit into one rank's memory.
double TokensPerRank(const reorder::ContextParallelInput& input) {
  return std::max(0.0, input.memory_per_rank - input.model_states) / input.memory_per_token;
}

// The input of a trainer without a planner: Megatron-LM keeps all weights and gradients on every rank.
absl::StatusOr<reorder::ContextParallelInput> WithoutPlanner(const DegreePolicy& policy, const Job& job,
                                                             const StepSamples& samples,
                                                             const TrainingModel& model,
                                                             const Machine& machine) {
  EVENKEEL_ASSIGN_OR_RETURN(reorder::ContextParallelInput input,
                            SequencesOf(job, samples, model, machine, machine.intra_node_bandwidth));
  input.model_states =
      DegreeCosts(job, model, machine).ModelStates(policy.ulysses ? 0 : kStateBytes - kOptimizerBytes);
  return input;
}

absl::StatusOr<StepFigures> WithoutAPlanner(const DegreePolicy& policy, const Job& job,
                                            const StepSamples& samples, const TrainingModel& model,
                                            const Machine& machine, uint32_t degree) {
  const uint64_t longest = LongestOf(samples.lengths);
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<uint32_t> degrees,
                            DegreesOfARun(policy, job, longest, model, machine));
  if (std::find(degrees.begin(), degrees.end(), degree) == degrees.end()) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(policy.name), ": no group of degree ", degree,
                                                   " holds a sequence of ", longest, " tokens"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(const reorder::ContextParallelInput input,
                            WithoutPlanner(policy, job, samples, model, machine));
  Step step(job, samples, model, machine, input);
  if (!policy.hybrid) return step.RunInTurn(degree, policy.ulysses);
  std::vector<uint32_t> tokens;
  for (const SampleLengths& lengths : samples.lengths) tokens.push_back(lengths.llm_length);
  return step.RunRounds(HybridRounds(tokens, input.ranks, TokensPerRank(input) / degree));
}

absl::StatusOr<StepFigures> FiguresOf(const DegreePolicy& policy, const reorder::ContextParallelInput& input,
                                      Step step) {
  if (policy.is_persistent()) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::vector<reorder::Wave> waves, reorder::PlanWaves(input));
    return step.RunPersistent(waves);
  }
  EVENKEEL_ASSIGN_OR_RETURN(const reorder::ContextParallelPlan plan, reorder::PlanContextParallel(input));
  return step.Run(plan);
}

}  // namespace

std::span<const DegreePolicy> DegreePolicies() { return kPolicies; }

const DegreePolicy* FindDegreePolicy(std::string_view name) { return reorder::FindByName(kPolicies, name); }

std::string DegreePolicyNames() { return reorder::NamesOf(kPolicies); }

absl::StatusOr<reorder::ContextParallelInput> SequencesOf(const Job& job, const StepSamples& samples,
                                                          const TrainingModel& model, const Machine& machine,
                                                          double bandwidth) {
  EVENKEEL_RETURN_IF_ERROR(CheckMachine(machine));
  EVENKEEL_RETURN_IF_ERROR(CheckPhases(job, model));
  const DegreeCosts costs(job, model, machine);
  EVENKEEL_RETURN_IF_ERROR(costs.Check());
  const Cost flops = ForwardFlops(*model.phase(Phase::kLlm));
  const double passes = costs.PassesOf(Phase::kLlm), seconds = passes / costs.Speed();
  reorder::ContextParallelInput input{.ranks = static_cast<uint32_t>(job.phase(Phase::kLlm)->ranks.size()),
                                      .memory_per_rank = machine.memory_bytes,
                                      .model_states = costs.ModelStates(/*replicated=*/0),
                                      .memory_per_token = costs.BytesPerToken()};
  for (const SampleLengths& lengths : samples.lengths)
    input.sequences.push_back({.tokens = lengths.llm_length});
  input.cost = {.attention = seconds * flops.quadratic,
                .linear = seconds * flops.linear,
                .ring = passes * costs.RingBytesPerToken() / costs.stages() / bandwidth};
  return input;
}

uint64_t LongestOf(std::span<const SampleLengths> samples) {
  uint64_t longest = 0;
  for (const SampleLengths& lengths : samples) longest = std::max<uint64_t>(longest, lengths.llm_length);
  return longest;
}

absl::StatusOr<std::vector<uint32_t>> DegreesOfARun(const DegreePolicy& policy, const Job& job,
                                                    uint64_t longest, const TrainingModel& model,
                                                    const Machine& machine) {
  if (!policy.one_degree() && !policy.hybrid) return std::vector<uint32_t>{0};
  EVENKEEL_ASSIGN_OR_RETURN(const reorder::ContextParallelInput input,
                            WithoutPlanner(policy, job, {}, model, machine));
  const uint32_t heads = policy.ulysses ? model.phase(Phase::kLlm)->heads : 0;
  const uint64_t most = heads == 0 ? input.ranks : std::min(input.ranks, heads);
  std::vector<uint32_t> degrees;
  for (uint64_t degree = 1; degree <= most; degree *= 2) {
    // Hybrid: the degree divides what a rank may hold, and the longest sequence still fits.
    const double tokens = TokensPerRank(input);
    const uint32_t of_longest =
        policy.hybrid ? HybridDegree(static_cast<uint32_t>(longest), tokens / static_cast<double>(degree))
                      : 0;
    const bool fits = policy.hybrid ? of_longest > 0 && of_longest <= most
                                    : static_cast<double>(degree) * tokens >= static_cast<double>(longest);
    if (fits) degrees.push_back(static_cast<uint32_t>(degree));
  }
  if (!degrees.empty()) return degrees;
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(policy.name), ": the longest sequence has ", longest, " tokens; a rank holds ",
                   static_cast<uint64_t>(TokensPerRank(input)),
                   " in addition to the model, and no group of a power of two up to ", most,
                   " ranks holds it; give more memory or ranks, or leave out the sequence or the policy"));
}

absl::StatusOr<StepFigures> ModelDegrees(const DegreePolicy& policy, const Job& job,
                                         const StepSamples& samples, const TrainingModel& model,
                                         const Machine& machine, uint32_t degree) {
  if (policy.one_degree() || policy.hybrid)
    return WithoutAPlanner(policy, job, samples, model, machine, degree);
  // Planned twice, once as if every ring stayed within a node and once as if none did, since groups that do
  // not fill nodes may cross them. The faster plan counts.
  std::optional<StepFigures> best;
  const double within = machine.intra_node_bandwidth, between = machine.inter_node_bandwidth;
  const std::pair<double, double> bandwidths[] = {{within, between}, {between, between}};
  for (const auto& [in_node, between_nodes] : bandwidths) {
    EVENKEEL_ASSIGN_OR_RETURN(reorder::ContextParallelInput input,
                              SequencesOf(job, samples, model, machine, in_node));
    if (policy.is_persistent()) {
      input.model_states = DegreeCosts(job, model, machine).ModelStates(kStateBytes - kOptimizerBytes);
    }
    input.ranks_per_node = SmallestNode(job);
    input.cost.ring_between_nodes = std::max(input.cost.ring, input.cost.ring * in_node / between_nodes);
    input.algorithm = std::string(policy.algorithm);
    input.powers_of_two = policy.powers_of_two;
    if (policy.pool > 0) {
      const uint32_t largest = std::bit_floor(input.ranks);
      input.degrees =
          PoolSizes(input.ranks, {.powers_of_two = true, .max_size = largest, .pool = policy.pool});
    }
    EVENKEEL_ASSIGN_OR_RETURN(StepFigures figures,
                              FiguresOf(policy, input, Step(job, samples, model, machine, input)));
    if (!best || figures.iteration_seconds < best->iteration_seconds) best = std::move(figures);
  }
  return *std::move(best);
}

}  // namespace evenkeel::advise
