// The kind `balance` of problems: reorder/problem/balance_problem.h as messages.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/item_phases.h"
#include "reorder/problem/balance_problem.h"
#include "reorder/problem/kinds.h"

namespace evenkeel::reorder {
namespace {

constexpr uint32_t kMaxRanks = 1u << 20;
constexpr double kMaxBatches = 1u << 24;

absl::StatusOr<Cost> ToCost(const pb::Cost& message, const std::string& field) {
  Cost cost;
  if (message.has_constant() || message.has_linear() || message.has_quadratic() ||
      message.has_mask_factor()) {
    cost = {message.constant(), message.linear(), message.quadratic(), message.mask_factor()};
  }
  for (double value : {cost.constant, cost.linear, cost.quadratic, cost.mask_factor}) {
    if (!(value >= 0 && value <= 1e15)) return BadField(field, "each must be in [0, 1e15]");
  }
  return cost;
}

absl::Status ReadBatching(const pb::BalancePhase& message, const std::string& field,
                          BalancePhaseInput& phase) {
  const std::string& batching = message.batching();
  phase.spec.padded_attention = batching == "padded_attention";
  if (batching == "padded") {
    phase.spec.batching = Batching::kPadded;
  } else if (!batching.empty() && batching != "packed" && !phase.spec.padded_attention) {
    return BadField(field + ".batching",
                    absl::StrCat("'", batching, "' is unknown; expected packed, padded or padded_attention"));
  }
  const std::string& runs = message.runs();
  if (runs == "once_per_microbatch") {
    phase.spec.runs = Runs::kOncePerMicrobatch;
  } else if (!runs.empty() && runs != "once_per_step") {
    return BadField(field + ".runs",
                    absl::StrCat("'", runs, "' is unknown; expected once_per_step or once_per_microbatch"));
  }
  return absl::OkStatus();
}

absl::StatusOr<BalancePhaseInput> ToPhase(const pb::BalancePhase& message, const Phase& named,
                                          const std::string& field) {
  BalancePhaseInput phase;
  phase.spec.phase = named;
  if ((message.num_ranks() > 0) == (message.ranks_size() > 0)) {
    return BadField(field, "give either num_ranks or ranks, of at least one rank");
  }
  if (message.num_ranks() > kMaxRanks) return BadField(field + ".num_ranks", "more than 2^20");
  phase.spec.ranks.assign(message.ranks().begin(), message.ranks().end());
  for (uint32_t r = 0; r < message.num_ranks(); ++r) phase.spec.ranks.push_back(r);
  phase.nodes.assign(message.nodes().begin(), message.nodes().end());
  EVENKEEL_ASSIGN_OR_RETURN(phase.spec.cost, ToCost(message.cost(), field + ".cost"));
  EVENKEEL_RETURN_IF_ERROR(ReadBatching(message, field, phase));
  if (!message.algorithm().empty()) phase.spec.algorithm = message.algorithm();
  phase.spec.min_items = message.min_items();
  phase.spec.equal_counts = message.equal_counts();
  phase.spec.node_wise = message.node_wise();
  if (message.has_tolerance()) phase.spec.tolerance = message.tolerance();
  phase.spec.capacity = message.capacity();
  return phase;
}

// The plan's size also grows with batches and dummies of all ranks.
absl::Status CheckSize(const BalanceInput& input) {
  for (const BalancePhaseInput& phase : input.phases) {
    const double size =
        1.0 * phase.spec.ranks.size() * input.microbatch.count_multiple * std::max(1u, phase.spec.min_items);
    if (size > kMaxBatches) {
      return BadField("balance", "ranks * microbatch.count_multiple * min_items is more than 2^24");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadRanksMeet(const pb::BalanceProblem& problem, BalanceInput& input) {
  const std::string& word = problem.ranks_meet();
  if (word.empty() || word == "every_phase") return absl::OkStatus();
  if (word != "end_of_step") {
    return BadField("balance.ranks_meet",
                    absl::StrCat("'", word, "' is unknown; expected every_phase or end_of_step"));
  }
  for (const BalancePhaseInput& phase : input.phases) {
    if (phase.spec.ranks != input.phases.front().spec.ranks) {
      return BadField("balance.ranks_meet",
                      "end_of_step needs the same ranks in all phases, in the same order");
    }
  }
  input.phases_add_up = true;
  return absl::OkStatus();
}

// An error that the planner would report in terms of steps and datasets.
absl::Status CheckTokens(const BalanceInput& input, const pb::BalanceSample& sample,
                         const std::string& field) {
  const MicrobatchSpec& microbatch = input.microbatch;
  const uint64_t align = microbatch.align, aligned = (sample.llm() + align - 1) / align * align;
  if (microbatch.capacity_tokens > 0 && aligned > microbatch.capacity_tokens) {
    return BadField(field + ".llm",
                    absl::StrCat(aligned, " tokens when aligned to ", microbatch.align,
                                 ", more than balance.microbatch.capacity_tokens, ",
                                 microbatch.capacity_tokens, "; raise it, or leave out the sample"));
  }
  return absl::OkStatus();
}

// Adds the items of a sample, each as an item of its phase.
class ItemReader {
 public:
  explicit ItemReader(const ItemPhases& phases) : phases_(phases) {}

  absl::Status Read(const pb::BalanceSample& message, const std::string& field, SampleLengths& sample) const {
    for (const pb::BalanceItem& item : message.vision()) {
      EVENKEEL_RETURN_IF_ERROR(Add("vision", item, field + ".vision", sample));
    }
    for (const pb::BalanceItem& item : message.audio()) {
      EVENKEEL_RETURN_IF_ERROR(Add("audio", item, field + ".audio", sample));
    }
    for (int i = 0; i < message.items_size(); ++i) {
      const pb::PhaseItem& item = message.items(i);
      EVENKEEL_RETURN_IF_ERROR(Add(item.phase(), item, absl::StrCat(field, ".items[", i, "].phase"), sample));
    }
    return absl::OkStatus();
  }

 private:
  template <typename Item>
  absl::Status Add(const std::string& phase, const Item& message, const std::string& field,
                   SampleLengths& sample) const {
    const std::vector<Phase>& known = phases_.phases();
    const auto found = std::find(known.begin(), known.end(), Phase(phase));
    if (found == known.end() || *found == Phase::kLlm) {
      return BadField(field, absl::StrCat("the problem has no phase ", phase,
                                          "; add it to balance.phases, or leave the items out"));
    }
    SampleItem item = phases_.KindOf(static_cast<size_t>(found - known.begin()));
    item.lengths = {message.cost_length(), message.cost_length(), message.output_rows()};
    sample.items.push_back(item);
    return absl::OkStatus();
  }

  const ItemPhases& phases_;
};

template <typename T, typename Field>
void Assign(const T& values, Field* field) {
  field->Assign(values.begin(), values.end());
}

void AddRanks(const Phase& phase, const Plan& plan, pb::BalancedPhase& message) {
  if (phase == Phase::kLlm) return;  // in BalanceSolution.llm_rank
  for (const PlannedItem& item : plan.items) {
    if (item.sample != kDummy && plan.phases[item.phase].phase == phase) message.add_rank(item.place.rank);
  }
}

pb::BalancedPhase ToMessage(const BalancedPhase& phase, const BalanceOutcome& outcome) {
  const Plan& plan = outcome.plan;
  pb::BalancedPhase message;
  if (const auto methods = outcome.methods.find(phase.phase); methods != outcome.methods.end()) {
    for (const std::string& method : methods->second) message.add_method(method);
  }
  message.set_name(std::string(PhaseName(phase.phase)));
  AddRanks(phase.phase, plan, message);
  Assign(phase.load, message.mutable_load());
  message.set_max_over_mean(phase.max_over_mean);
  message.set_reachable(phase.reachable);
  message.set_rows(phase.rows);
  message.set_rows_to_other_rank(phase.rows_to_other_rank);
  message.set_inter_node_rows(phase.inter_node_rows);
  message.set_inter_node_rows_bound(phase.inter_node_rows_bound);
  message.set_max_node_egress(phase.max_node_egress);
  message.set_max_node_ingress(phase.max_node_ingress);
  message.set_max_rank_volume(phase.max_rank_volume);
  message.set_max_rank_volume_bound(phase.max_rank_volume_bound);
  for (const UnitTooLong& unit : phase.too_long) {
    pb::TooLong* too_long = message.add_too_long();
    too_long->set_sample(unit.sample);
    too_long->set_item(unit.item);
    too_long->set_length(unit.length);
    too_long->set_over_mean(unit.over_mean);
  }
  return message;
}

pb::BalanceSolution ToMessage(const BalanceOutcome& outcome) {
  pb::BalanceSolution message;
  message.set_num_microbatches(outcome.plan.num_microbatches);
  for (const PlannedSample& sample : outcome.plan.samples) {
    message.add_llm_rank(sample.place.rank);
    message.add_llm_microbatch(sample.place.microbatch);
  }
  for (const BalancedPhase& phase : outcome.phases) *message.add_phases() = ToMessage(phase, outcome);
  for (const Route& route : outcome.plan.routes) {
    pb::BalanceRoute* out = message.add_routes();
    out->set_phase(std::string(PhaseName(route.from)));
    out->set_microbatch(route.microbatch);
    for (const RouteRun& run : RunsOf(outcome.plan, route)) {
      out->add_from(run.from);
      out->add_to(run.to);
      out->add_from_row(run.from_row);
      out->add_to_row(run.to_row);
      out->add_rows(run.rows);
    }
  }
  message.set_inter_node_rows(outcome.inter_node_rows);
  message.set_max_over_mean_of_step(outcome.max_over_mean_of_step);
  return message;
}

}  // namespace

absl::StatusOr<BalanceInput> ToBalanceInput(const pb::BalanceProblem& problem) {
  BalanceInput input{.ranks_per_node = problem.ranks_per_node()};
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<Phase> phases, PhasesOf(problem.phases(), "balance.phases"));
  if (std::find(phases.begin(), phases.end(), Phase::kLlm) == phases.end()) {
    return BadField("balance.phases", "none is named llm; one must be");
  }
  for (int p = 0; p < problem.phases_size(); ++p) {
    EVENKEEL_ASSIGN_OR_RETURN(
        BalancePhaseInput phase,
        ToPhase(problem.phases(p), phases[static_cast<size_t>(p)], absl::StrCat("balance.phases[", p, "]")));
    input.phases.push_back(std::move(phase));
  }
  input.microbatch = {.capacity_tokens = problem.microbatch().capacity_tokens(),
                      .pad_to = problem.microbatch().pad_to(),
                      .align = std::max(1u, problem.microbatch().align()),
                      .count_multiple = std::max(1u, problem.microbatch().count_multiple())};
  EVENKEEL_RETURN_IF_ERROR(CheckSize(input));
  const ItemPhases item_phases(phases);
  const ItemReader items(item_phases);
  for (int s = 0; s < problem.samples_size(); ++s) {
    const pb::BalanceSample& message = problem.samples(s);
    const std::string field = absl::StrCat("balance.samples[", s, "]");
    EVENKEEL_RETURN_IF_ERROR(CheckTokens(input, message, field));
    SampleLengths& sample = input.step.lengths.emplace_back();
    sample.llm_length = message.llm();
    EVENKEEL_RETURN_IF_ERROR(items.Read(message, field, sample));
    input.step.refs.push_back({0, 0, input.step.refs.size()});
  }
  input.llm_rank.assign(problem.llm_rank().begin(), problem.llm_rank().end());
  EVENKEEL_RETURN_IF_ERROR(ReadRanksMeet(problem, input));
  return input;
}

absl::Status SolveBalance(const pb::BalanceProblem& problem, pb::Solution& solution) {
  EVENKEEL_ASSIGN_OR_RETURN(const BalanceInput input, ToBalanceInput(problem));
  const StopWatch watch;
  EVENKEEL_ASSIGN_OR_RETURN(BalanceOutcome outcome, PlanBalance(input));
  solution.set_wall_ms(watch.Milliseconds());
  EVENKEEL_RETURN_IF_ERROR(MeasureBalance(input, outcome));
  *solution.mutable_balance() = ToMessage(outcome);
  return absl::OkStatus();
}

}  // namespace evenkeel::reorder
