// Formats the results of `evenkeel simulate` as a Markdown table and as JSON.
#include "cli/simulate_report.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "advise/step_model_degrees.h"
#include "telemetry/event_log.h"

namespace evenkeel::cli {
namespace {

// The figures that are means over all steps.
constexpr double advise::StepFigures::*kMeans[] = {&advise::StepFigures::iteration_seconds,
                                                   &advise::StepFigures::exchange_seconds,
                                                   &advise::StepFigures::bubble_share,
                                                   &advise::StepFigures::pad_ratio,
                                                   &advise::StepFigures::mfu,
                                                   &advise::StepFigures::inter_node_bytes,
                                                   &advise::StepFigures::pipeline_bubble_share};

std::string Quoted(std::string_view text) {
  std::string out;
  telemetry::AppendJsonString(text, out);
  return out;
}

// The groups of the first step.
void AppendGroups(const std::vector<advise::GroupFigures>& groups, std::string& out) {
  const char* comma = "";
  out += R"(,"groups":[)";
  for (const advise::GroupFigures& group : groups) {
    absl::StrAppendFormat(&out, R"(%s{"microbatch":%d,"ranks":[%s],"tokens":%d,"start":%.9g,"end":%.9g})",
                          comma, group.microbatch, absl::StrJoin(group.ranks, ","), group.tokens, group.start,
                          group.end);
    comma = ",";
  }
  out += "]";
}

// The time of the fastest static policy among those compared: of trainers, with one degree for the whole run,
// or of the best degree for every step. 0: there is none.
double LeastSeconds(const Simulation& simulation, bool one_degree) {
  double least = 0;
  for (const PolicyFigures& figures : simulation.policies) {
    const advise::DegreePolicy* policy =
        figures.first.groups.empty() ? nullptr : advise::FindDegreePolicy(figures.name);
    if (policy == nullptr || !policy->is_static() || policy->one_degree() != one_degree) continue;
    const double seconds = figures.mean.iteration_seconds;
    if (least == 0 || seconds < least) least = seconds;
  }
  return least;
}

}  // namespace

std::string DegreesOf(const advise::StepFigures& figures) {
  // Hybrid degrees have an entry for every sequence of a group.
  std::set<std::vector<uint32_t>> of_first;
  for (const advise::GroupFigures& group : figures.groups) {
    if (group.microbatch == 0) of_first.insert(group.ranks);
  }
  std::map<size_t, int, std::greater<>> groups;
  for (const std::vector<uint32_t>& ranks : of_first) ++groups[ranks.size()];
  std::string out;
  for (const auto& [degree, count] : groups) {
    absl::StrAppendFormat(&out, "%s<%d>x%d", out.empty() ? "" : " ", degree, count);
  }
  return out;
}

void PolicyFigures::Add(advise::StepFigures figures) {
  for (double advise::StepFigures::*figure : kMeans) mean.*figure += figures.*figure;
  mean.peak_memory_bytes = std::max(mean.peak_memory_bytes, figures.peak_memory_bytes);
  mean.phases.resize(figures.phases.size());
  for (size_t p = 0; p < figures.phases.size(); ++p) {
    advise::PhaseFigures& phase = mean.phases[p];
    if (steps == 0) phase = {.phase = figures.phases[p].phase, .max_over_mean = 0, .index_max_over_mean = 0};
    phase.max_over_mean += figures.phases[p].max_over_mean;
    phase.pad_ratio += figures.phases[p].pad_ratio;
    phase.index_max_over_mean += figures.phases[p].index_max_over_mean;
  }
  if (steps++ == 0) first = std::move(figures);
}

void PolicyFigures::Finish() {
  for (double advise::StepFigures::*figure : kMeans) mean.*figure /= steps;
  for (advise::PhaseFigures& phase : mean.phases) {
    phase.max_over_mean /= steps;
    phase.index_max_over_mean /= steps;
    phase.pad_ratio /= steps;
  }
}

std::string SimulationTable(const Simulation& simulation) {
  std::string out = simulation.heading + "\n\n| policy | iteration, s | waiting | MFU allowed |";
  std::string rule = "|---|---|---|---|";
  for (const advise::PhaseFigures& phase : simulation.policies.front().mean.phases) {
    absl::StrAppend(&out, " ", std::string(PhaseName(phase.phase)), " max/mean |");
    rule += "---|";
  }
  const bool is_pipeline = !simulation.policies.front().first.slowest.busy.empty();
  if (is_pipeline) {
    for (const advise::PhaseFigures& phase : simulation.policies.front().mean.phases) {
      absl::StrAppend(&out, " ", std::string(PhaseName(phase.phase)), " per index |");
      rule += "---|";
    }
    out += " bubble |";
    rule += "---|";
  }
  const bool has_groups = !simulation.policies.front().first.groups.empty();
  const double of_trainers = LeastSeconds(simulation, /*one_degree=*/true),
               with_hindsight = LeastSeconds(simulation, /*one_degree=*/false);
  absl::StrAppend(&out, " padding | inter-node MB | exchange, ms | peak memory, GB |",
                  has_groups ? " microbatches of the first step | groups of its first |" : "",
                  of_trainers > 0 ? " times faster than static |" : "",
                  with_hindsight > 0 ? " than static with hindsight |" : "", "\n", rule,
                  has_groups ? "---|---|---|---|---|---|" : "---|---|---|---|", of_trainers > 0 ? "---|" : "",
                  with_hindsight > 0 ? "---|" : "", "\n");
  for (const PolicyFigures& figures : simulation.policies) {
    const advise::StepFigures& mean = figures.mean;
    absl::StrAppendFormat(&out, "| %s | %.4f | %.1f %% | %.1f %% |", std::string(figures.name),
                          mean.iteration_seconds, 100 * mean.bubble_share, 100 * mean.mfu);
    for (const advise::PhaseFigures& phase : mean.phases)
      absl::StrAppendFormat(&out, " %.3f |", phase.max_over_mean);
    if (is_pipeline) {
      for (const advise::PhaseFigures& phase : mean.phases)
        absl::StrAppendFormat(&out, " %.3f |", phase.index_max_over_mean);
      absl::StrAppendFormat(&out, " %.1f %% |", 100 * mean.pipeline_bubble_share);
    }
    absl::StrAppendFormat(&out, " %.1f %% | %.1f | %.2f | %.1f |", 100 * mean.pad_ratio,
                          mean.inter_node_bytes / 1e6, 1e3 * mean.exchange_seconds,
                          mean.peak_memory_bytes / 1e9);
    if (has_groups) {
      absl::StrAppend(&out, " ", figures.first.groups.back().microbatch + 1, " | ", DegreesOf(figures.first),
                      " |");
    }
    for (double seconds : {of_trainers, with_hindsight}) {
      if (seconds > 0) absl::StrAppendFormat(&out, " %.3f |", seconds / mean.iteration_seconds);
    }
    out += "\n";
  }
  return out;
}

std::string SimulationJson(const Simulation& simulation) {
  std::string out = absl::StrFormat(R"({"heading":%s,"policies":[)", Quoted(simulation.heading));
  const char* comma = "";
  for (const PolicyFigures& figures : simulation.policies) {
    const advise::StepFigures& mean = figures.mean;
    absl::StrAppendFormat(
        &out,
        R"(%s{"policy":%s,"says":%s,"steps":%d,"iteration_seconds":%.9g,"exchange_seconds":%.9g,)"
        R"("bubble_share":%.9g,"mfu":%.9g,"pad_ratio":%.9g,"inter_node_bytes":%.9g,"peak_memory_bytes":%.9g,)"
        R"("pipeline_bubble_share":%.9g,"gpus":%.9g,"phases":[)",
        comma, Quoted(figures.name), Quoted(figures.summary), figures.steps, mean.iteration_seconds,
        mean.exchange_seconds, mean.bubble_share, mean.mfu, mean.pad_ratio, mean.inter_node_bytes,
        mean.peak_memory_bytes, mean.pipeline_bubble_share, figures.first.gpus);
    comma = "";
    for (const advise::PhaseFigures& phase : mean.phases) {
      absl::StrAppendFormat(
          &out, R"(%s{"phase":%s,"max_over_mean":%.9g,"index_max_over_mean":%.9g,"pad_ratio":%.9g})", comma,
          Quoted(PhaseName(phase.phase)), phase.max_over_mean, phase.index_max_over_mean, phase.pad_ratio);
      comma = ",";
    }
    out += "]";
    if (!figures.first.groups.empty()) AppendGroups(figures.first.groups, out);
    out += "}";
    comma = ",";
  }
  return out + "]}";
}

}  // namespace evenkeel::cli
