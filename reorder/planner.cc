// Translates between the structs of core/, whose encoder phases have names, and the planner's core
// (plan_phases.h), whose encoders have numbers.
#include "reorder/planner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/planned_tokens.h"
#include "core/status.h"
#include "reorder/item_phases.h"
#include "reorder/loads.h"
#include "reorder/pack/pack.h"
#include "reorder/pipeline/microbatch_order.h"
#include "reorder/plan_phases.h"
#include "reorder/step_groups.h"

namespace evenkeel::reorder {
namespace {

absl::StatusOr<Layout> LayoutOf(const Job& job) {
  if (job.phases.size() > kMaxPhases) {
    return absl::InvalidArgumentError(
        absl::StrCat("phases: ", job.phases.size(), "; at most ", kMaxPhases, " are supported"));
  }
  const PhaseSpec* llm = nullptr;
  std::vector<const PhaseSpec*> encoders;
  for (const PhaseSpec& spec : job.phases) {
    if (job.phase(spec.phase) != &spec) {
      return absl::InvalidArgumentError(
          absl::StrCat("phases: ", std::string(PhaseName(spec.phase)), " is there twice"));
    }
    if (spec.phase == Phase::kLlm) {
      llm = &spec;
    } else {
      encoders.push_back(&spec);
    }
  }
  if (llm == nullptr) return absl::InvalidArgumentError("phases: none is named llm; one must be");
  return MakeLayout(job, *llm, std::move(encoders));
}

std::vector<Phase> EncodersOf(const Layout& layout) {
  std::vector<Phase> encoders;
  for (const PhaseSpec* spec : layout.encoders) encoders.push_back(spec->phase);
  return encoders;
}

absl::Status TooLong(const Job& job, const StepSamples& step, size_t s, uint64_t aligned) {
  const SampleRef& ref = step.refs[s];
  if (job.groups.given) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step.step, ": sample ", ref.index, " of dataset ", ref.dataset, " takes ",
                     aligned, " llm tokens when aligned to ", std::max(1u, job.microbatch.align),
                     ", more than the largest group holds (", job.groups.max_size, " ranks of ",
                     job.groups.tokens_per_rank,
                     "); raise topology.groups.max_size or tokens_per_rank, or lower limits.max_llm_length "
                     "and index again"));
  }
  const uint64_t capacity = CapacityTokens(job);
  return absl::InvalidArgumentError(
      absl::StrCat("step ", step.step, ": sample ", ref.index, " of dataset ", ref.dataset, " takes ",
                   aligned, " llm tokens when aligned to ", std::max(1u, job.microbatch.align),
                   ", more than a microbatch holds (", capacity == 0 ? uint64_t{UINT32_MAX} : capacity,
                   "); raise microbatch.capacity_tokens or lower limits.max_llm_length and index again"));
}

absl::Status CheckSize(const StepSamples& step) {
  const size_t samples = step.refs.size();
  if (!step.bin_begin.empty() && step.bin_begin.back() != samples) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step.step, ": bins of ", step.bin_begin.back(), " samples, of ", samples));
  }
  if (step.lengths.size() != samples) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step.step, ": ", samples, " samples but lengths of ", step.lengths.size()));
  }
  size_t items = 0;
  for (const SampleLengths& lengths : step.lengths) items += lengths.items.size();
  if (samples < kDummy && items < kDummy) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("step ", step.step, ": ", samples, " samples with ", items,
                                                 " items are too many for one step"));
}

absl::Status FillUnits(const Job& job, const StepSamples& step, const Layout& layout, LlmUnits& llm,
                       std::vector<EncoderUnits>& encoders) {
  EVENKEEL_RETURN_IF_ERROR(CheckSize(step));
  const ItemPhases table(EncodersOf(layout));
  const uint64_t align = std::max(1u, job.microbatch.align), capacity = CapacityTokens(job);
  const uint64_t max_tokens = capacity == 0 ? UINT32_MAX : std::min<uint64_t>(capacity, UINT32_MAX);
  uint32_t item = 0;
  llm.tokens.reserve(step.lengths.size());
  const auto is_pair = [](const SampleLengths& lengths) { return lengths.chosen_length != 0; };
  if (std::any_of(step.lengths.begin(), step.lengths.end(), is_pair)) {
    llm.chosen.assign(step.lengths.size(), 0);
    llm.rejected_last = layout.llm->batching == Batching::kPadded;
  }
  for (uint32_t s = 0; s < step.lengths.size(); ++s) {
    const PlannedLength planned = PlannedTokens(step.lengths[s], align, layout.llm->batching);
    if (planned.tokens > max_tokens) return TooLong(job, step, s, planned.tokens);
    llm.tokens.push_back(static_cast<uint32_t>(planned.tokens));
    if (!llm.chosen.empty()) llm.chosen[s] = static_cast<uint32_t>(planned.chosen);
    const std::vector<SampleItem>& items = step.lengths[s].items;
    for (size_t i = 0; i < items.size(); ++i) {
      const SampleItem& of_sample = items[i];
      const std::optional<size_t> e = table.Find(of_sample);
      if (!e.has_value()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "step ", step.step, ": sample ", step.refs[s].index, " of dataset ", step.refs[s].dataset,
            ": no phase of the job ", of_sample.tower == kTargetTower ? "generates " : "encodes ",
            std::string(MediumName(of_sample.medium)), " items",
            of_sample.has_placeholders() ? std::string() : absl::StrCat(" as tower ", of_sample.tower),
            "; add one to the job's phases, or index again"));
      }
      encoders[*e].Append(item++, s, of_sample);
      // The second half of a pair's items are those of its rejected sequence.
      if (llm.rejected_last) encoders[*e].rejected.push_back(planned.chosen != 0 && 2 * i >= items.size());
    }
  }
  return absl::OkStatus();
}

void FillSamplesAndItems(const StepSamples& step, const LlmUnits& llm, Plan& plan) {
  plan.samples.reserve(step.refs.size());
  for (uint32_t s = 0; s < step.refs.size(); ++s) {
    const SampleLengths& lengths = step.lengths[s];
    plan.loss_tokens += lengths.loss_tokens;
    plan.samples.push_back({.llm_length = llm.tokens[s],
                            .loss_tokens = lengths.loss_tokens,
                            .first_item = static_cast<uint32_t>(plan.items.size()),
                            .num_items = static_cast<uint32_t>(lengths.items.size()),
                            .place = {llm.rank[s], llm.microbatch[s], llm.position[s]}});
    uint32_t next_ordinal = 0;
    for (const SampleItem& item : lengths.items) {
      if (item.begins_medium()) ++next_ordinal;
      plan.items.push_back({.sample = s,
                            .ordinal = next_ordinal - 1,
                            .medium = item.medium,
                            .tower = item.tower,
                            .lengths = item.lengths});
    }
  }
}

// Where the phase is in the job, and so in the plan.
uint8_t NumberIn(const Job& job, const PhaseSpec& spec) {
  return static_cast<uint8_t>(&spec - job.phases.data());
}

Plan ToPlan(const Job& job, const StepSamples& step, const Layout& layout, const LlmUnits& llm,
            std::vector<EncoderUnits>& encoders, PlannedPhases planned) {
  Plan plan{.step = step.step, .num_microbatches = planned.num_microbatches};
  plan.groups = std::move(planned.groups);
  size_t num_items = 0;
  for (const EncoderUnits& units : encoders) num_items += units.item.size() + units.dummies.size();
  plan.items.reserve(num_items);
  FillSamplesAndItems(step, llm, plan);
  for (size_t e = 0; e < encoders.size(); ++e) {
    EncoderUnits& units = encoders[e];
    const uint8_t phase = NumberIn(job, *layout.encoders[e]);
    const bool per_microbatch = layout.encoders[e]->runs == Runs::kOncePerMicrobatch;
    for (size_t i = 0; i < units.item.size(); ++i) {
      const uint32_t microbatch = per_microbatch ? llm.microbatch[units.sample[i]] : 0;
      plan.items[units.item[i]].place = {units.rank[i], microbatch, units.position[i]};
      plan.items[units.item[i]].phase = phase;
    }
    for (PlannedItem& dummy : units.dummies) dummy.phase = phase;
    plan.items.insert(plan.items.end(), units.dummies.begin(), units.dummies.end());
    planned.encoders[e].phase = layout.encoders[e]->phase;
    for (Route& route : planned.routes[e]) {
      route.from = layout.encoders[e]->phase;
      route.to = Phase::kLlm;
      plan.routes.push_back(std::move(route));
    }
  }
  planned.llm.phase = Phase::kLlm;
  size_t next = 0;
  for (const PhaseSpec& spec : job.phases) {
    plan.phases.push_back(spec.phase == Phase::kLlm ? std::move(planned.llm)
                                                    : std::move(planned.encoders[next++]));
  }
  return plan;
}

}  // namespace

absl::Status CheckJob(const Job& job) {
  EVENKEEL_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(job));
  EVENKEEL_RETURN_IF_ERROR(CheckOptions(*layout.llm));
  for (const PhaseSpec* spec : layout.encoders) EVENKEEL_RETURN_IF_ERROR(CheckOptions(*spec));
  EVENKEEL_RETURN_IF_ERROR(CheckGroups(job, layout));
  if (job.batch.pack.bins > 0) EVENKEEL_RETURN_IF_ERROR(CheckPackAlgorithm(job.batch.pack.algorithm));
  const absl::Status order = OrderMicrobatches({.algorithm = job.pipeline.order}).status();
  if (order.ok()) return order;
  return absl::InvalidArgumentError(absl::StrCat("pipeline.order: ", order.message()));
}

absl::StatusOr<Plan> MakePlan(const Job& job, const StepSamples& samples, const DummyItems& dummies,
                              const PlanOptions& options) {
  EVENKEEL_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(job));
  LlmUnits llm{.bin_begin = samples.bin_begin};
  std::vector<EncoderUnits> encoders(layout.encoders.size());
  for (size_t e = 0; e < encoders.size(); ++e) {
    encoders[e].dummy = dummies[layout.encoders[e]->phase.number()];
  }
  EVENKEEL_RETURN_IF_ERROR(FillUnits(job, samples, layout, llm, encoders));
  EVENKEEL_ASSIGN_OR_RETURN(PlannedPhases planned,
                            PlanPhases(job, layout, samples.step, options, llm, encoders));
  Plan plan = ToPlan(job, samples, layout, llm, encoders, std::move(planned));
#ifndef NDEBUG
  EVENKEEL_RETURN_IF_ERROR(PlanCheck(job, samples, plan));
#endif
  return plan;
}

}  // namespace evenkeel::reorder
