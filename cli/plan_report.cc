// Formats a plan as a table and as JSON, with loads before and after balancing.
#include "cli/plan_report.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/quoted.h"
#include "core/max_over_mean.h"
#include "core/status.h"

namespace evenkeel::cli {
namespace {

// Plans with more ranks are summarised.
constexpr size_t kMaxRanksShown = 16;

std::string Array(const std::vector<uint64_t>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i) absl::StrAppendFormat(&out, "%s%d", i > 0 ? "," : "", values[i]);
  return out + "]";
}
std::string Array(const std::vector<uint32_t>& values) {
  return Array(std::vector<uint64_t>(values.begin(), values.end()));
}
std::string Array(const std::vector<double>& values) {
  std::string out = "[";
  for (size_t i = 0; i < values.size(); ++i)
    absl::StrAppendFormat(&out, "%s%.17g", i > 0 ? "," : "", values[i]);
  return out + "]";
}

std::string PlaceJson(const Place& place) {
  return absl::StrFormat(R"({"rank":%d,"microbatch":%d,"position":%d})", place.rank, place.microbatch,
                         place.position);
}

std::string ItemJson(const PlannedItem& item) {
  return absl::StrFormat(R"({"medium":%s,"cost_length":%d,"input_rows":%d,"output_rows":%d,"place":%s})",
                         Quoted(MediumName(item.medium)), item.lengths.cost_length, item.lengths.input_rows,
                         item.lengths.output_rows, PlaceJson(item.place));
}

absl::StatusOr<std::string> SampleJson(const stream::Stream& stream, const stream::StepPlan& step,
                                       size_t number) {
  const SampleRef& ref = step.samples.refs[number];
  const PlannedSample& sample = step.plan.samples[number];
  EVENKEEL_ASSIGN_OR_RETURN(const dataset::SamplePlaces places, stream.index->places(ref.dataset, ref.index));
  std::string out = absl::StrFormat(
      R"({"name":%s,"dataset":%d,"epoch":%d,"index":%d,"llm_length":%d,"loss_tokens":%d,"place":%s,"items":[)",
      Quoted(dataset::SampleName(stream.job, places)), ref.dataset, ref.epoch, ref.index, sample.llm_length,
      sample.loss_tokens, PlaceJson(sample.place));
  for (uint32_t i = 0; i < sample.num_items; ++i) {
    absl::StrAppend(&out, i > 0 ? "," : "", ItemJson(step.plan.items[sample.first_item + i]));
  }
  return out + "]}";
}

std::string PhaseJson(const PhasePlan& phase) {
  return absl::StrFormat(
      R"({"phase":%s,"ranks":%s,"num_microbatches":%d,"load_before":%s,"load_after":%s,"tokens_before":%s,)"
      R"("tokens_after":%s,"max_over_mean_before":%.6f,"max_over_mean_after":%.6f})",
      Quoted(PhaseName(phase.phase)), Array(phase.ranks), phase.num_microbatches, Array(phase.load_before),
      Array(phase.load_after), Array(phase.tokens_before), Array(phase.tokens_after),
      MaxOverMean(phase.load_before), MaxOverMean(phase.load_after));
}

// Rows of a route by distance: kept on their rank, moved within a node, moved across nodes. `senders`: the most other ranks
// that send to one.
struct Movement {
  uint64_t local = 0, node = 0, cross = 0, senders = 0;
};

Movement MovementOf(const Job& job, const Route& route) {
  Movement out;
  for (size_t from = 0; from < route.ranks.size(); ++from) {
    for (const RouteSegment& segment : route.per_rank[from].send) {
      const bool same_node = job.NodeOf(route.ranks[from]) == job.NodeOf(route.ranks[segment.peer]);
      (segment.peer == from ? out.local : same_node ? out.node : out.cross) += segment.rows;
    }
  }
  for (size_t to = 0; to < route.ranks.size(); ++to) {
    const RankRoute& one = route.per_rank[to];
    std::set<uint32_t> senders;
    for (const RouteSegment& segment : route.from.is_generator() ? one.send : one.receive)
      if (segment.peer != to) senders.insert(segment.peer);
    out.senders = std::max<uint64_t>(out.senders, senders.size());
  }
  return out;
}

// The phases that rows leave and reach: a generator's come from the llm.
std::pair<Phase, Phase> EndsOf(const Route& route) {
  const bool is_backwards = route.from.is_generator();
  return is_backwards ? std::pair(route.to, route.from) : std::pair(route.from, route.to);
}

std::string RouteJson(const Job& job, const Route& route) {
  const Movement rows = MovementOf(job, route);
  const auto [from, to] = EndsOf(route);
  return absl::StrFormat(
      R"({"from":%s,"to":%s,"microbatch":%d,"ranks":%s,"rows_local":%d,"rows_within_node":%d,"rows_across_nodes":%d,"most_senders":%d})",
      Quoted(PhaseName(from)), Quoted(PhaseName(to)), route.microbatch, Array(route.ranks), rows.local,
      rows.node, rows.cross, rows.senders);
}

void AddPhaseRows(const PhasePlan& phase, std::string& out) {
  const std::string name(PhaseName(phase.phase));
  absl::StrAppendFormat(&out, "\n%-8s %8s  %14s %14s  %14s %14s\n", name, "rank", "tokens before", "after",
                        "load before", "after");
  for (size_t i = 0; i < phase.ranks.size() && phase.ranks.size() <= kMaxRanksShown; ++i) {
    absl::StrAppendFormat(&out, "%-8s %8d  %14d %14d  %14.6g %14.6g\n", "", phase.ranks[i],
                          phase.tokens_before[i], phase.tokens_after[i], phase.load_before[i],
                          phase.load_after[i]);
  }
  absl::StrAppendFormat(&out, "%-8s %8s  %14s %14s  %14.4f %14.4f\n", "", "max/mean", "", "",
                        MaxOverMean(phase.load_before), MaxOverMean(phase.load_after));
}

// The groups of one microbatch, by their first ranks.
std::vector<RankGroup> GroupsOf(const Plan& plan, uint32_t microbatch) {
  std::vector<RankGroup> groups;
  for (size_t rank = 0; rank * plan.num_microbatches < plan.groups.size();) {
    groups.push_back(plan.groups[rank * plan.num_microbatches + microbatch]);
    rank += groups.back().size;
  }
  return groups;
}

// "groups of microbatch 0: 1 of 4 ranks, 4 of 1 rank", and so on.
void AddGroupRows(const Plan& plan, std::string& out) {
  for (uint32_t m = 0; m < plan.num_microbatches && !plan.groups.empty(); ++m) {
    std::map<uint32_t, uint32_t, std::greater<>> count;  // by size, the largest first
    for (const RankGroup& group : GroupsOf(plan, m)) ++count[group.size];
    absl::StrAppendFormat(&out, "%sgroups of microbatch %d:", m == 0 ? "\n" : "", m);
    for (const auto& [size, groups] : count) {
      absl::StrAppendFormat(&out, "%s %d of %d rank%s", size == count.begin()->first ? "" : ",", groups, size,
                            size == 1 ? "" : "s");
    }
    out += "\n";
  }
}

std::string GroupsJson(const Plan& plan) {
  std::string out = "[";
  for (uint32_t m = 0; m < plan.num_microbatches; ++m) {
    absl::StrAppend(&out, m > 0 ? "," : "", "[");
    for (const RankGroup& group : GroupsOf(plan, m)) {
      absl::StrAppend(&out, group.first > 0 ? "," : "", "[", group.first, ",", group.size, "]");
    }
    out += "]";
  }
  return out + "]";
}

// Attention takes a tenth of the work of a model with 7 billion weights from about this length on.
constexpr uint32_t kLongSequence = 8192;

void AddNoteOnCost(const Job& job, const Plan& plan, std::string& out) {
  if (job.phase(Phase::kLlm)->cost.quadratic > 0) return;
  uint32_t longest = 0;
  for (const PlannedSample& sample : plan.samples) longest = std::max(longest, sample.llm_length);
  if (longest < kLongSequence) return;
  absl::StrAppendFormat(
      &out,
      "\nnote: the llm's cost is linear, and the longest sample has %d tokens, of which attention "
      "costs the square; give phase llm a cost with `quadratic` (docs/job.md, cost)\n",
      longest);
}

}  // namespace

std::string PlanTable(const stream::Stream& stream, const stream::StepPlan& step) {
  const Plan& plan = step.plan;
  std::string out = absl::StrFormat(
      "step %d of %s: %d samples, %d items, %d microbatches a rank, %d loss tokens\n", plan.step,
      stream.job.name, plan.samples.size(), plan.items.size(), plan.num_microbatches, plan.loss_tokens);
  for (const PhasePlan& phase : plan.phases) AddPhaseRows(phase, out);
  for (const PhasePlan& encoder : plan.phases) {
    const Phase& phase = encoder.phase;
    Movement rows;
    std::optional<std::pair<Phase, Phase>> ends;
    for (const Route& route : plan.routes) {
      if (route.from != phase) continue;
      const Movement one = MovementOf(stream.job, route);
      rows = {rows.local + one.local, rows.node + one.node, rows.cross + one.cross,
              std::max(rows.senders, one.senders)};
      ends = EndsOf(route);
    }
    if (!ends) continue;
    absl::StrAppendFormat(&out,
                          "\nroute %s -> %s: %d rows stay on their rank, %d move within a node, %d across",
                          std::string(PhaseName(ends->first)), std::string(PhaseName(ends->second)),
                          rows.local, rows.node, rows.cross);
    if (rows.senders > 0)
      absl::StrAppendFormat(&out, "; a rank receives from at most %d others at once", rows.senders);
    out += "\n";
  }
  AddGroupRows(plan, out);
  AddNoteOnCost(stream.job, plan, out);
  return out;
}

absl::StatusOr<std::string> PlanJson(const stream::Stream& stream, const stream::StepPlan& step) {
  const Plan& plan = step.plan;
  std::string out =
      absl::StrFormat(R"({"step":%d,"num_microbatches":%d,"num_samples":%d,"loss_tokens":%d,"samples":[)",
                      plan.step, plan.num_microbatches, plan.samples.size(), plan.loss_tokens);
  for (size_t i = 0; i < plan.samples.size(); ++i) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::string sample, SampleJson(stream, step, i));
    absl::StrAppend(&out, i > 0 ? "," : "", sample);
  }
  out += R"(],"dummies":[)";
  bool first = true;
  for (const PlannedItem& item : plan.items) {
    if (item.sample != kDummy) continue;
    absl::StrAppend(&out, first ? "" : ",", ItemJson(item));
    first = false;
  }
  out += R"(],"phases":[)";
  for (size_t i = 0; i < plan.phases.size(); ++i)
    absl::StrAppend(&out, i > 0 ? "," : "", PhaseJson(plan.phases[i]));
  out += R"(],"routes":[)";
  for (size_t i = 0; i < plan.routes.size(); ++i)
    absl::StrAppend(&out, i > 0 ? "," : "", RouteJson(stream.job, plan.routes[i]));
  out += "]";
  if (!plan.groups.empty()) absl::StrAppend(&out, R"(,"groups":)", GroupsJson(plan));
  return out + "}";
}

}  // namespace evenkeel::cli
