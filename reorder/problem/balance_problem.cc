// A balance problem as a job: plans it, and reads the figures off the plan.
#include "reorder/problem/balance_problem.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/max_over_mean.h"
#include "core/status.h"
#include "reorder/balance/balance.h"
#include "reorder/balance/node_wise.h"
#include "reorder/layout.h"
#include "reorder/loads.h"
#include "reorder/planner.h"

namespace evenkeel::reorder {
namespace {

std::string NameOf(const Phase& phase) { return std::string(PhaseName(phase)); }

// Global ranks such that the node of each is that of the input: node * stride + slot, equal ranks alike.
absl::Status NumberByNode(const BalanceInput& input, Job& job) {
  std::map<uint32_t, uint32_t> node_of;  // by global rank
  for (const BalancePhaseInput& phase : input.phases) {
    if (phase.nodes.size() != phase.spec.ranks.size()) {
      return absl::InvalidArgumentError(absl::StrCat("phase ", NameOf(phase.spec.phase), " has ",
                                                     phase.nodes.size(), " nodes for ",
                                                     phase.spec.ranks.size(), " ranks"));
    }
    for (size_t r = 0; r < phase.nodes.size(); ++r) {
      const auto [it, fresh] = node_of.insert({phase.spec.ranks[r], phase.nodes[r]});
      if (!fresh && it->second != phase.nodes[r]) {
        return absl::InvalidArgumentError(absl::StrCat("global rank ", it->first, " is on node ", it->second,
                                                       " in one phase and on node ", phase.nodes[r],
                                                       " in phase ", NameOf(phase.spec.phase)));
      }
    }
  }
  std::map<uint32_t, std::vector<uint32_t>> on_node;  // global ranks, ascending
  for (const auto& [rank, node] : node_of) on_node[node].push_back(rank);
  const uint64_t stride = std::max<uint64_t>(1, node_of.size());
  if (stride * on_node.size() > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(node_of.size(), " ranks on ", on_node.size(), " nodes are too many"));
  }
  std::map<uint32_t, uint32_t> renumbered;
  uint64_t begin = 0;  // of the node's numbers
  for (const auto& [node, ranks] : on_node) {
    for (size_t slot = 0; slot < ranks.size(); ++slot) {
      renumbered[ranks[slot]] = static_cast<uint32_t>(begin + slot);
    }
    begin += stride;
  }
  job.ranks_per_node = static_cast<uint32_t>(stride);
  for (PhaseSpec& spec : job.phases) {
    for (uint32_t& rank : spec.ranks) rank = renumbered[rank];
  }
  return absl::OkStatus();
}

absl::StatusOr<Job> MakeJob(const BalanceInput& input) {
  Job job;
  job.ranks_per_node = input.ranks_per_node;
  job.microbatch = input.microbatch;
  job.phases_add_up = input.phases_add_up;
  bool has_nodes = false;
  for (const BalancePhaseInput& phase : input.phases) {
    job.phases.push_back(phase.spec);
    has_nodes |= !phase.nodes.empty();
  }
  if (has_nodes) EVENKEEL_RETURN_IF_ERROR(NumberByNode(input, job));
  return job;
}

// What one unit of a phase is, read off the plan.
struct Unit {
  uint32_t sample = 0;
  uint32_t length = 0;
  uint32_t rows = 0;
  uint32_t rank = 0;
  double cost = 0;
};

std::vector<Unit> UnitsOf(const PhaseSpec& spec, const Plan& plan) {
  std::vector<Unit> units;
  if (spec.phase == Phase::kLlm) {
    for (uint32_t s = 0; s < plan.samples.size(); ++s) {
      const PlannedSample& sample = plan.samples[s];
      units.push_back({s, sample.llm_length, 0, sample.place.rank, CleanCost(spec.cost, sample.llm_length)});
    }
    return units;
  }
  for (const PlannedItem& item : plan.items) {
    if (item.sample == kDummy || plan.phases[item.phase].phase != spec.phase) continue;
    units.push_back({item.sample, item.lengths.cost_length, item.lengths.output_rows, item.place.rank,
                     CleanCost(spec.cost, item.lengths.cost_length)});
  }
  return units;
}

void MeasurePhase(const BalancePhaseInput& input, const std::vector<Unit>& units, const Plan& plan,
                  BalancedPhase& result) {
  result.load = plan.phase(result.phase)->load_after;
  const double ranks = static_cast<double>(result.load.size());
  const double sum = std::accumulate(result.load.begin(), result.load.end(), 0.0);
  if (!(sum > 0)) return;
  result.max_over_mean = MaxOverMean(result.load);
  // Where batches are padded their total depends on how they are cut: the mean is that of the units alone.
  double total = 0;
  for (const Unit& unit : units) total += unit.cost;
  const double mean = total / ranks;
  double heaviest = 0;
  const double most = mean * (1 + input.spec.tolerance.value_or(kTolerance));
  for (uint32_t i = 0; i < units.size(); ++i) {
    heaviest = std::max(heaviest, units[i].cost);
    if (!(units[i].cost > most)) continue;
    const uint32_t item = input.spec.phase == Phase::kLlm ? 0 : i;
    result.too_long.push_back({units[i].sample, item, units[i].length, units[i].cost / mean});
  }
  const bool packed = input.spec.batching == Batching::kPacked && !input.spec.padded_attention;
  if (packed) result.reachable = std::max(1.0, heaviest * ranks / sum);
}

// Where the llm parts are, as seen from one encoder.
class Volumes {
 public:
  // `layout`: of the llm and the encoder alone.
  Volumes(const Layout& layout, const std::vector<Unit>& units, const Plan& plan)
      : num_nodes_(layout.num_nodes),
        llm_(layout.llm_ranks),
        encoder_(layout.encoder_ranks.front()),
        units_(units),
        plan_(plan) {}

  void Measure(double tolerance, BalancedPhase& result) const {
    std::vector<uint64_t> egress(num_nodes_, 0), ingress(num_nodes_, 0), away(llm_.size(), 0);
    for (const Unit& unit : units_) {
      const uint32_t home = HomeOf(unit), from = encoder_.node[unit.rank], to = llm_.node[home];
      result.rows += unit.rows;
      if (encoder_.global[unit.rank] != llm_.global[home]) result.rows_to_other_rank += unit.rows;
      if (from == to) continue;
      result.inter_node_rows += unit.rows;
      egress[from] += unit.rows;
      ingress[to] += unit.rows;
      away[home] += unit.rows;
    }
    result.max_node_egress = *std::max_element(egress.begin(), egress.end());
    result.max_node_ingress = *std::max_element(ingress.begin(), ingress.end());
    result.max_rank_volume = *std::max_element(away.begin(), away.end());
    result.max_rank_volume_bound = RankVolumeBound();
    result.inter_node_rows_bound = RowsThatMustLeave(tolerance);
  }

 private:
  uint32_t HomeOf(const Unit& unit) const { return plan_.samples[unit.sample].place.rank; }

  uint64_t RankVolumeBound() const {
    NodeWiseProblem problem{.source_node = llm_.node, .num_batches = encoder_.size()};
    for (uint32_t n = 0; n < num_nodes_; ++n) {
      problem.slots.push_back(static_cast<uint32_t>(encoder_.OnNode(n).size()));
    }
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> rows;
    for (const Unit& unit : units_) rows[{HomeOf(unit), unit.rank}] += unit.rows;
    for (const auto& [pair, count] : rows) problem.volumes.push_back({pair.first, pair.second, count});
    return EgressBound(problem);
  }

  // Of every node whose encoder ranks would have more than the cap if nothing moved, the fewest rows that go
  // with the excess: items of few rows for their cost first, the last one in part.
  uint64_t RowsThatMustLeave(double tolerance) const {
    std::vector<double> load(num_nodes_, 0), ranks(num_nodes_, 0);
    double total = 0, heaviest = 0;
    for (const Unit& unit : units_) {
      load[llm_.node[HomeOf(unit)]] += unit.cost;
      total += unit.cost;
      heaviest = std::max(heaviest, unit.cost);
    }
    for (uint32_t n : encoder_.node) ranks[n] += 1;
    const double cap = std::max(total / static_cast<double>(encoder_.size()), heaviest) * (1 + tolerance);
    std::vector<std::vector<const Unit*>> of_node(num_nodes_);
    for (const Unit& unit : units_) {
      const uint32_t n = llm_.node[HomeOf(unit)];
      if (load[n] > cap * ranks[n] && unit.cost > 0) of_node[n].push_back(&unit);
    }
    double rows = 0;
    for (size_t n = 0; n < num_nodes_; ++n) {
      double excess = load[n] - cap * ranks[n];
      std::stable_sort(of_node[n].begin(), of_node[n].end(),
                       [](const Unit* a, const Unit* b) { return a->rows * b->cost < b->rows * a->cost; });
      for (const Unit* unit : of_node[n]) {
        if (excess <= 0) break;
        rows += unit->rows * std::min(1.0, excess / unit->cost);
        excess -= unit->cost;
      }
    }
    return static_cast<uint64_t>(rows);
  }

  const uint32_t num_nodes_;
  const PhaseRanks& llm_;
  const PhaseRanks& encoder_;
  const std::vector<Unit>& units_;
  const Plan& plan_;
};

// Where phases add up, all of them have the same ranks in the same order.
void MeasureStep(BalanceOutcome& outcome) {
  std::vector<double> load(outcome.phases.front().load.size(), 0);
  for (const BalancedPhase& phase : outcome.phases) {
    for (size_t r = 0; r < load.size(); ++r) load[r] += phase.load[r];
  }
  outcome.max_over_mean_of_step = MaxOverMean(load);
}

}  // namespace

absl::StatusOr<BalanceOutcome> PlanBalance(const BalanceInput& input) {
  BalanceOutcome outcome;
  EVENKEEL_ASSIGN_OR_RETURN(outcome.job, MakeJob(input));
  const PlanOptions options{.llm_rank = input.llm_rank, .methods = &outcome.methods};
  DummyItems dummies;  // of no length
  for (const PhaseSpec& spec : outcome.job.phases) {
    SampleItem& dummy = dummies[spec.phase.number()];
    if (!spec.phase.takes(Medium::kImage)) dummy.medium = Medium::kAudio;
    if (spec.phase.is_generator()) dummy.tower = kTargetTower;
  }
  EVENKEEL_ASSIGN_OR_RETURN(outcome.plan, MakePlan(outcome.job, input.step, dummies, options));
  return outcome;
}

absl::Status MeasureBalance(const BalanceInput& input, BalanceOutcome& outcome) {
  EVENKEEL_RETURN_IF_ERROR(PlanCheck(outcome.job, input.step, outcome.plan));
  for (size_t p = 0; p < input.phases.size(); ++p) {
    const BalancePhaseInput& phase = input.phases[p];
    const PhaseSpec& spec = outcome.job.phases[p];
    const std::vector<Unit> units = UnitsOf(spec, outcome.plan);
    BalancedPhase& result = outcome.phases.emplace_back();
    result.phase = spec.phase;
    MeasurePhase(phase, units, outcome.plan, result);
    if (spec.phase == Phase::kLlm) continue;
    const double tolerance =
        phase.spec.tolerance.value_or(input.llm_rank.empty() ? kTolerance : kToleranceOfGiven);
    EVENKEEL_ASSIGN_OR_RETURN(const Layout layout,
                              MakeLayout(outcome.job, *outcome.job.phase(Phase::kLlm), {&spec}));
    Volumes(layout, units, outcome.plan).Measure(tolerance, result);
    outcome.inter_node_rows += result.inter_node_rows;
  }
  if (input.phases_add_up) MeasureStep(outcome);
  return absl::OkStatus();
}

absl::StatusOr<BalanceOutcome> SolveBalance(const BalanceInput& input) {
  EVENKEEL_ASSIGN_OR_RETURN(BalanceOutcome outcome, PlanBalance(input));
  EVENKEEL_RETURN_IF_ERROR(MeasureBalance(input, outcome));
  return outcome;
}

std::vector<RouteRun> RunsOf(const Plan& plan, const Route& route) {
  const auto rank_in = [&](const Phase& phase) {  // by index into route.ranks
    std::vector<uint32_t> rank(route.ranks.size(), 0);
    const std::vector<uint32_t>& globals = plan.phase(phase)->ranks;
    for (uint32_t r = 0; r < globals.size(); ++r) {
      rank[static_cast<size_t>(std::lower_bound(route.ranks.begin(), route.ranks.end(), globals[r]) -
                               route.ranks.begin())] = r;
    }
    return rank;
  };
  const std::vector<uint32_t> from_rank = rank_in(route.from), to_rank = rank_in(route.to);
  // Senders' segments are by peer and receivers are visited in ascending order: one cursor per sender.
  std::vector<size_t> next(route.ranks.size(), 0);
  std::vector<RouteRun> runs;
  for (uint32_t to = 0; to < route.ranks.size(); ++to) {
    for (const RouteSegment& received : route.per_rank[to].receive) {
      const RouteSegment& sent = route.per_rank[received.peer].send[next[received.peer]++];
      runs.push_back({from_rank[received.peer], to_rank[to], sent.row, received.row, received.rows});
    }
  }
  return runs;
}

}  // namespace evenkeel::reorder
