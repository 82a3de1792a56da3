// Binds the planner to Python: numpy arrays of lengths in, ranks, loads and routes as numpy arrays out.
#include "client/python/src/plan.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/python/src/arrays.h"
#include "client/python/src/status.h"
#include "core/status.h"
#include "reorder/item_phases.h"
#include "reorder/problem/balance_problem.h"
#include "reorder/problem/solve.h"

namespace evenkeel::python {
namespace py = pybind11;
namespace {

// plan.py has checked and converted these: one dimension, values that fit into 32 bits.
using Numbers = py::array_t<uint32_t, py::array::c_style>;

std::span<const uint32_t> View(const Numbers& array) {
  return {array.data(), static_cast<size_t>(array.size())};
}

template <typename T>
py::array_t<T> Wrap(const std::vector<T>& values) {
  const std::vector<py::ssize_t> shape = {static_cast<py::ssize_t>(values.size())};
  return py::array_t<T>(shape, DenseStrides(shape, sizeof(T)), values.data());
}

// The items of one encoder phase: parallel arrays, one element per item.
struct ItemArrays {
  std::string phase;
  std::span<const uint32_t> sample, cost_length, output_rows;
};

// Builds a step of the lengths alone. A sample's index is its position, and an item computes what it outputs
// to the encoder's cost: cost_length serves as input_rows, too.
absl::StatusOr<StepSamples> MakeStep(const std::vector<reorder::BalancePhaseInput>& inputs,
                                     std::span<const uint32_t> llm, const std::vector<ItemArrays>& phases) {
  std::vector<Phase> known;
  for (const reorder::BalancePhaseInput& input : inputs) known.push_back(input.spec.phase);
  const reorder::ItemPhases table(known);
  StepSamples step;
  step.refs.resize(llm.size());
  step.lengths.resize(llm.size());
  for (size_t s = 0; s < llm.size(); ++s) {
    step.refs[s].index = s;
    step.lengths[s].llm_length = llm[s];
  }
  for (const ItemArrays& items : phases) {
    const auto found = std::find(known.begin(), known.end(), Phase(items.phase));
    if (found == known.end() || *found == Phase::kLlm) {
      return absl::InvalidArgumentError(absl::StrCat("items of '", items.phase,
                                                     "': ranks has no encoder phase of that name; add it, or "
                                                     "leave the items out"));
    }
    SampleItem item = table.KindOf(static_cast<size_t>(found - known.begin()));
    for (size_t i = 0; i < items.sample.size(); ++i) {
      item.lengths = {items.cost_length[i], items.cost_length[i], items.output_rows[i]};
      step.lengths[items.sample[i]].items.push_back(item);
    }
  }
  return step;
}

absl::StatusOr<reorder::BalanceOutcome> SolveArrays(const std::string& problem, std::span<const uint32_t> llm,
                                                    const std::vector<ItemArrays>& phases) {
  EVENKEEL_ASSIGN_OR_RETURN(reorder::BalanceInput input, reorder::ParseBalanceInput(problem));
  EVENKEEL_ASSIGN_OR_RETURN(input.step, MakeStep(input.phases, llm, phases));
  return reorder::SolveBalance(input);
}

// Per route five arrays of equal length, one element per run of rows: from, to, from_row, to_row, rows.
py::list WrapRoutes(const Plan& plan, const Phase& phase) {
  py::list routes;
  for (const Route& route : plan.routes) {
    if (route.from != phase) continue;
    std::vector<uint32_t> from, to;
    std::vector<uint64_t> from_row, to_row, rows;
    for (const reorder::RouteRun& run : reorder::RunsOf(plan, route)) {
      from.push_back(run.from);
      to.push_back(run.to);
      from_row.push_back(run.from_row);
      to_row.push_back(run.to_row);
      rows.push_back(run.rows);
    }
    routes.append(py::make_tuple(Wrap(from), Wrap(to), Wrap(from_row), Wrap(to_row), Wrap(rows)));
  }
  return routes;
}

// Ranks in the order of the caller's samples or items; the planner's dummies are skipped.
py::dict WrapPhase(const reorder::BalancedPhase& phase, const Plan& plan) {
  std::vector<uint32_t> rank;
  if (phase.phase == Phase::kLlm) {
    for (const PlannedSample& sample : plan.samples) rank.push_back(sample.place.rank);
  } else {
    for (const PlannedItem& item : plan.items) {
      if (item.sample != kDummy && plan.phases[item.phase].phase == phase.phase)
        rank.push_back(item.place.rank);
    }
  }
  py::dict out;
  out["rank"] = Wrap(rank);
  out["load"] = Wrap(phase.load);
  out["max_over_mean"] = phase.max_over_mean;
  out["reachable"] = phase.reachable;
  out["rows"] = phase.rows;
  out["rows_to_other_rank"] = phase.rows_to_other_rank;
  out["inter_node_rows"] = phase.inter_node_rows;
  out["routes"] = WrapRoutes(plan, phase.phase);
  return out;
}

using PhaseItems = std::tuple<std::string, Numbers, Numbers, Numbers>;  // name, sample, cost_length, rows

// Returns (num_microbatches, microbatch of every sample, {phase: figures and arrays}).
py::tuple BalanceArrays(const std::string& problem, const Numbers& llm,
                        const std::vector<PhaseItems>& encoders) {
  std::vector<ItemArrays> phases;
  phases.reserve(encoders.size());
  for (const auto& [name, sample, cost_length, rows] : encoders) {
    phases.push_back({name, View(sample), View(cost_length), View(rows)});
  }
  absl::StatusOr<reorder::BalanceOutcome> outcome;
  {
    py::gil_scoped_release released;
    outcome = SolveArrays(problem, View(llm), phases);
  }
  Check(outcome.status());
  std::vector<uint32_t> microbatch;
  for (const PlannedSample& sample : outcome->plan.samples) microbatch.push_back(sample.place.microbatch);
  py::dict figures;
  for (const reorder::BalancedPhase& phase : outcome->phases) {
    figures[py::str(std::string(PhaseName(phase.phase)))] = WrapPhase(phase, outcome->plan);
  }
  return py::make_tuple(outcome->plan.num_microbatches, Wrap(microbatch), std::move(figures));
}

std::string PySolveJson(const std::string& problem) {
  absl::StatusOr<std::string> solution;
  {
    py::gil_scoped_release released;
    solution = reorder::SolveJson(problem);
  }
  Check(solution.status());
  return *std::move(solution);
}

}  // namespace

void BindPlan(py::module_& module) {
  module.def("solve_json", &PySolveJson);
  module.def("balance_arrays", &BalanceArrays);
}

}  // namespace evenkeel::python
