#include "reorder/planner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/balance.h"
#include "reorder/layout.h"
#include "reorder/loads.h"
#include "reorder/microbatches.h"
#include "reorder/pipeline_order.h"
#include "reorder/units.h"
#include "reorder/workspace.h"

namespace evenkeel {
namespace {

using namespace reorder;  // NOLINT: this file is the room's door

std::string NameOf(Phase phase) { return std::string(PhaseName(phase)); }

// Index in the layout of the encoder of each medium, or -1. A table, because what comes next is anybody's
// guess: a processor that guesses at branches guesses wrong.
using EncoderOfMedium = std::array<int8_t, 256>;
EncoderOfMedium EncodersByMedium(const Layout& layout) {
  EncoderOfMedium index;
  index.fill(-1);
  for (size_t e = 0; e < layout.encoders.size(); ++e) {
    for (Medium medium : {Medium::kImage, Medium::kVideo, Medium::kAudio}) {
      if (PhaseOf(medium) == layout.encoders[e]->phase)
        index[static_cast<size_t>(medium)] = static_cast<int8_t>(e);
    }
  }
  return index;
}

// Where the next item of an encoder is written, in all columns.
struct Target {
  uint32_t next = 0;
  uint32_t step = 1;
};

absl::Status TooLong(const Job& job, const StepSamples& step, size_t s, uint64_t aligned) {
  const SampleRef& ref = step.refs[s];
  return absl::InvalidArgumentError(absl::StrCat(
      "step ", step.step, ": sample ", ref.index, " of dataset ", ref.dataset, " takes ", aligned,
      " llm tokens when aligned to ", std::max(1u, job.microbatch.align), ", more than a microbatch holds (",
      CapacityTokens(job) == 0 ? uint64_t{UINT32_MAX} : CapacityTokens(job),
      "); raise microbatch.capacity_tokens or lower limits.max_llm_length and index again"));
}

class Planner {
 public:
  Planner(const Job& job, const StepSamples& step, const DummyItems& dummies, const PlanOptions& options,
          Layout layout)
      : job_(job),
        step_(step),
        dummies_(dummies),
        options_(options),
        layout_(std::move(layout)),
        num_items_(CountItems(step)),
        workspace_(WorkspaceBytes()),
        encoders_(layout_.encoders.size()) {}

  absl::StatusOr<Plan> Run() {
    EVENKEEL_RETURN_IF_ERROR(CheckOptions());
    EVENKEEL_RETURN_IF_ERROR(Fill());
    FillCosts();
    PlaceSamples();
    Split();
    EVENKEEL_RETURN_IF_ERROR(Order());
    PlaceItems();
    Arrange();
    return std::move(plan_);
  }

 private:
  static constexpr size_t kAhead = 8;  // samples whose items are asked for before they are read

  static size_t CountItems(const StepSamples& step) {
    size_t items = 0;
    for (const SampleLengths& lengths : step.lengths) items += lengths.items.size();
    return items;
  }

  // About what the arrays of all stages take, of which some take the place of others.
  size_t WorkspaceBytes() const {
    constexpr size_t kPerSample = 80, kPerItem = 53, kPerRank = 128;
    return step_.refs.size() * kPerSample + num_items_ * kPerItem + layout_.llm_ranks.size() * kPerRank;
  }

  absl::Status CheckOptions() const {
    if (!options_.llm_rank.empty() && options_.llm_rank.size() != step_.refs.size()) {
      return absl::InvalidArgumentError(absl::StrCat("the llm placement has ", options_.llm_rank.size(),
                                                     " ranks for ", step_.refs.size(), " samples"));
    }
    for (size_t s = 0; s < options_.llm_rank.size(); ++s) {
      if (options_.llm_rank[s] < layout_.llm_ranks.size()) continue;
      return absl::InvalidArgumentError(absl::StrCat("sample ", s, " is placed on llm rank ",
                                                     options_.llm_rank[s], " of ", layout_.llm_ranks.size()));
    }
    for (const PhaseSpec& spec : job_.phases) EVENKEEL_RETURN_IF_ERROR(CheckOptions(spec));
    return absl::OkStatus();
  }

  absl::Status CheckOptions(const PhaseSpec& spec) const {
    const bool padded = spec.batching == Batching::kPadded || spec.padded_attention;
    if (spec.equal_counts && padded) {
      return absl::InvalidArgumentError(absl::StrCat(
          "phase ", NameOf(spec.phase), ": equal_counts cannot be kept where batches are padded; ",
          "leave it out, or make the batching packed"));
    }
    if (spec.equal_counts && !KeepsCountsEqual(spec.algorithm)) {
      return absl::InvalidArgumentError(
          absl::StrCat("phase ", NameOf(spec.phase), ": algorithm ", spec.algorithm,
                       " cannot keep counts equal; take karmarkar_karp, intra_microbatch, greedy_packed or "
                       "balance_without_moving, or leave equal_counts out"));
    }
    if (spec.tolerance && !(*spec.tolerance >= 0 && *spec.tolerance < 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("phase ", NameOf(spec.phase), ": tolerance ", *spec.tolerance, " is not in [0, 1)"));
    }
    return absl::OkStatus();
  }

  static void SetOptions(const PhaseSpec& spec, double tolerance, BalanceProblem& problem) {
    problem.tolerance = spec.tolerance.value_or(tolerance);
    problem.equal_counts = spec.equal_counts;
    problem.padded_attention = spec.padded_attention;
  }

  // What is read often of samples and items, into arrays.
  absl::Status Fill() {
    const size_t samples = step_.refs.size(), items = num_items_;
    if (step_.lengths.size() != samples) {
      return absl::InvalidArgumentError(
          absl::StrCat("step ", step_.step, ": ", samples, " samples but lengths of ", step_.lengths.size()));
    }
    if (samples >= kDummy || items >= kDummy) {
      return absl::InvalidArgumentError(absl::StrCat("step ", step_.step, ": ", samples, " samples with ",
                                                     items, " items are too many for one step"));
    }
    plan_.step = step_.step;
    for (auto* column : {&llm_.tokens, &llm_.loss_tokens, &llm_.position}) {
      *column = workspace_.Take<uint32_t>(samples);
    }
    llm_.first_item = workspace_.Take<uint32_t>(samples + 1);
    llm_.medium = workspace_.Take<Medium>(items);
    // One array of each kind for all items: the first encoder's from its front, the second's from its back.
    EncoderUnits of_all;
    for (auto* column : Columns(of_all)) *column = workspace_.Take<uint32_t>(items);
    of_all.video = workspace_.Take<bool>(items);
    static_assert(kEncoderPhases.size() == 2);
    const EncoderOfMedium encoder_of = EncodersByMedium(layout_);
    std::array<Target, kEncoderPhases.size()> targets = {
        {{}, {static_cast<uint32_t>(items) - 1, UINT32_MAX}}};
    const uint64_t align = std::max(1u, job_.microbatch.align), capacity = CapacityTokens(job_);
    const uint64_t most = capacity == 0 ? UINT32_MAX : std::min<uint64_t>(capacity, UINT32_MAX);
    const SampleLengths* const all = step_.lengths.data();
    // Pointers, because whatever is stored might otherwise be one of the spans.
    uint32_t *const tokens = llm_.tokens.data(), *const loss_tokens = llm_.loss_tokens.data(),
                    *const first_item = llm_.first_item.data();
    uint32_t *const item_of = of_all.item.data(), *const sample_of = of_all.sample.data(),
                    *const length_of = of_all.length.data(), *const rows_of = of_all.rows.data(),
                    *const input_rows_of = of_all.input_rows.data();
    bool* const video_of = of_all.video.data();
    Medium* const medium = llm_.medium.data();
    uint64_t all_loss_tokens = 0;
    uint32_t item = 0;
    for (uint32_t s = 0; s < samples; ++s) {
      // Every sample has its items on the heap.
      if (s + kAhead < samples) __builtin_prefetch(all[s + kAhead].items.data());
      const uint64_t length = all[s].llm_length;
      const uint64_t aligned = align == 1 ? length : RoundUp(length, align);
      if (aligned > most) return TooLong(job_, step_, s, aligned);
      tokens[s] = static_cast<uint32_t>(aligned);
      loss_tokens[s] = all[s].loss_tokens;
      first_item[s] = item;
      all_loss_tokens += all[s].loss_tokens;
      for (const SampleItem& of_sample : all[s].items) {
        const int e = encoder_of[static_cast<uint8_t>(of_sample.medium)];
        if (e < 0) return WithoutEncoder(s, encoder_of);
        Target& to = targets[static_cast<size_t>(e)];
        const uint32_t i = to.next;
        to.next += to.step;
        item_of[i] = item;
        sample_of[i] = s;
        length_of[i] = of_sample.lengths.cost_length;
        rows_of[i] = of_sample.lengths.output_rows;
        input_rows_of[i] = of_sample.lengths.input_rows;
        video_of[i] = of_sample.medium == Medium::kVideo;
        medium[item++] = of_sample.medium;
      }
    }
    plan_.loss_tokens = all_loss_tokens;
    first_item[samples] = item;
    if (!encoders_.empty()) TakeColumns(of_all, targets[0].next);
    return absl::OkStatus();
  }

  // Splits the columns of all items between the encoders.
  void TakeColumns(EncoderUnits& of_all, size_t of_first) {
    const auto split = [&](auto& column, auto EncoderUnits::*of_encoder) {
      encoders_[0].*of_encoder = column.first(of_first);
      if (encoders_.size() == 1) return;
      encoders_[1].*of_encoder = column.subspan(of_first);
      std::reverse(column.begin() + of_first, column.end());
    };
    split(of_all.item, &EncoderUnits::item);
    split(of_all.sample, &EncoderUnits::sample);
    split(of_all.length, &EncoderUnits::length);
    split(of_all.rows, &EncoderUnits::rows);
    split(of_all.input_rows, &EncoderUnits::input_rows);
    split(of_all.video, &EncoderUnits::video);
  }

  static std::array<std::span<uint32_t>*, 5> Columns(EncoderUnits& units) {
    return {&units.item, &units.sample, &units.length, &units.rows, &units.input_rows};
  }

  absl::Status WithoutEncoder(uint32_t s, const EncoderOfMedium& encoder_of) const {
    for (const SampleItem& item : step_.lengths[s].items) {
      const Phase phase = PhaseOf(item.medium);
      if (encoder_of[static_cast<uint8_t>(item.medium)] >= 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "step ", step_.step, ": sample ", step_.refs[s].index, " of dataset ", step_.refs[s].dataset,
          " has an item of phase ", NameOf(phase), ", which no encoder of the job runs"));
    }
    return absl::OkStatus();
  }

  void FillCosts() {
    llm_.load = workspace_.Take<Load>(llm_.tokens.size());
    FillLoads(layout_.llm->cost, layout_.llm->batching, llm_.tokens, llm_.load);
    for (size_t e = 0; e < encoders_.size(); ++e) {
      EncoderUnits& units = encoders_[e];
      units.load = workspace_.Take<Load>(units.length.size());
      FillLoads(layout_.encoders[e]->cost, layout_.encoders[e]->batching, units.length, units.load);
      units.load_of_sample = workspace_.Zeros<Load>(llm_.tokens.size());
      for (size_t i = 0; i < units.load.size(); ++i) units.load_of_sample[units.sample[i]] += units.load[i];
    }
  }

  // The ranks among which the phase's algorithm does not care who has a batch, by a number each.
  std::vector<uint32_t> Interchangeable(size_t e) const {
    const PhaseSpec& spec = *layout_.encoders[e];
    const PhaseRanks& ranks = layout_.encoder_ranks[e];
    if (spec.node_wise || spec.algorithm == NodeWise().name()) return ranks.node;
    std::vector<uint32_t> group(ranks.size(), 0);
    const bool stays = spec.algorithm == None().name() || spec.algorithm == BalanceWithoutMoving().name();
    if (stays) std::iota(group.begin(), group.end(), 0u);
    return group;
  }

  bool RunsPerMicrobatch(size_t e) const { return layout_.encoders[e]->runs == Runs::kOncePerMicrobatch; }

  void PlaceSamples() {
    if (!options_.llm_rank.empty()) {
      llm_.rank.assign(options_.llm_rank.begin(), options_.llm_rank.end());
      return;
    }
    BalanceProblem problem{.ranks = &layout_.llm_ranks,
                           .batching = layout_.llm->batching,
                           .cost = llm_.load,
                           .length = llm_.tokens,
                           .workspace = &workspace_};
    SetOptions(*layout_.llm, kTolerance, problem);
    if (problem.batching == Batching::kPadded) problem.batches_per_rank = PaddedBatchesPerRank();
    for (size_t e = 0; e < encoders_.size(); ++e) {
      const PhaseSpec& spec = *layout_.encoders[e];
      const bool stays = spec.batching == Batching::kPacked &&
                         (spec.algorithm == BalanceWithoutMoving().name() || spec.algorithm == None().name());
      if (stays && layout_.neighbours[e].in_view) problem.in_view.push_back(encoders_[e].load_of_sample);
    }
    llm_.rank = FindBalancer(layout_.llm->algorithm)->Assign(problem);
  }

  // How many padded microbatches a rank will need about: the fewest for all samples, over the ranks.
  uint32_t PaddedBatchesPerRank() const {
    const uint32_t multiple = std::max(1u, job_.microbatch.count_multiple);
    const uint64_t capacity = CapacityTokens(job_);
    const uint64_t ranks = layout_.llm_ranks.size();
    const uint64_t least =
        capacity == 0 ? 1 : (LeastPaddedBatches(llm_.tokens, capacity) + ranks - 1) / ranks;
    return static_cast<uint32_t>((std::max<uint64_t>(1, least) + multiple - 1) / multiple * multiple);
  }

  void Split() {
    SplitProblem problem{.num_ranks = layout_.llm_ranks.size(),
                         .rank = llm_.rank,
                         .tokens = llm_.tokens,
                         .cost = llm_.load,
                         .batching = layout_.llm->batching,
                         .capacity_tokens = CapacityTokens(job_),
                         .count_multiple = job_.microbatch.count_multiple};
    for (size_t e = 0; e < encoders_.size(); ++e) {
      if (RunsPerMicrobatch(e)) problem.in_view.push_back(encoders_[e].load_of_sample);
    }
    reorder::Split split =
        options_.microbatches_in_order ? FillInOrder(problem) : SplitIntoMicrobatches(problem);
    plan_.num_microbatches = split.num_microbatches;
    llm_.microbatch = std::move(split.microbatch);
  }

  absl::Status Order() {
    if (job_.pipeline_stages == 1 || plan_.num_microbatches == 1) return absl::OkStatus();
    return OrderForPipeline(job_, layout_, encoders_,
                            {.algorithm = options_.microbatch_order, .seed = job_.seed + step_.step},
                            plan_.num_microbatches, llm_);
  }

  void PlaceItems() {
    for (size_t e = 0; e < encoders_.size(); ++e) {
      EncoderUnits& units = encoders_[e];
      if (!RunsPerMicrobatch(e) || plan_.num_microbatches == 1) {
        units.rank = PlaceGroup(e, units.sample, units.load, units.length, units.rows);
        continue;
      }
      units.rank.resize(units.item.size());
      std::vector<std::vector<uint32_t>> members(plan_.num_microbatches);
      for (uint32_t i = 0; i < units.item.size(); ++i) members[llm_.microbatch[units.sample[i]]].push_back(i);
      BatchesInTurn in_turn(Interchangeable(e));
      for (const std::vector<uint32_t>& group : members) {
        std::vector<uint32_t> sample, length, rows;
        std::vector<Load> load;
        for (uint32_t i : group) {
          sample.push_back(units.sample[i]);
          load.push_back(units.load[i]);
          length.push_back(units.length[i]);
          rows.push_back(units.rows[i]);
        }
        std::vector<uint32_t> rank = PlaceGroup(e, sample, load, length, rows);
        in_turn.Rename(layout_.encoders[e]->batching, load, rank);
        for (size_t k = 0; k < group.size(); ++k) units.rank[group[k]] = rank[k];
      }
    }
  }

  // Balances the items that run in one exchange, given the sample of each; their ranks.
  std::vector<uint32_t> PlaceGroup(size_t e, std::span<const uint32_t> sample, std::span<const Load> load,
                                   std::span<const uint32_t> length, std::span<const uint32_t> rows) {
    const Workspace::Scope scope(workspace_);
    const std::span<uint32_t> home = workspace_.Take<uint32_t>(sample.size());
    for (size_t i = 0; i < sample.size(); ++i) home[i] = llm_.rank[sample[i]];
    BalanceProblem problem{.ranks = &layout_.encoder_ranks[e],
                           .batching = layout_.encoders[e]->batching,
                           .cost = load,
                           .neighbours = &layout_.neighbours[e],
                           .home = home,
                           .homes_are_given = !options_.llm_rank.empty(),
                           .length = length,
                           .rows = rows,
                           .workspace = &workspace_};
    const PhaseSpec& spec = *layout_.encoders[e];
    SetOptions(spec, options_.llm_rank.empty() ? kTolerance : kToleranceOfGiven, problem);
    std::vector<uint32_t> rank = FindBalancer(spec.algorithm)->Assign(problem);
    return spec.node_wise ? PermuteNodeWise(problem, rank) : rank;
  }

  // Positions, batches, routes and loads, once every unit has its rank and microbatch.
  void Arrange() {
    PhasePlan llm{
        .phase = Phase::kLlm, .ranks = layout_.llm->ranks, .num_microbatches = plan_.num_microbatches};
    OrderSamples(llm_, llm, workspace_);
    std::vector<PhasePlan> encoders;
    std::vector<PlannedItem> dummies;
    for (size_t e = 0; e < encoders_.size(); ++e) {
      const PhaseSpec& spec = *layout_.encoders[e];
      const SampleItem& dummy = dummies_[static_cast<size_t>(spec.phase)];
      PhasePlan encoder{.phase = spec.phase,
                        .ranks = spec.ranks,
                        .num_microbatches = RunsPerMicrobatch(e) ? plan_.num_microbatches : 1};
      OrderItems(llm_, llm, layout_.neighbours[e], spec.min_items, dummy, encoders_[e], encoder, dummies,
                 plan_.routes, workspace_);
      encoders.push_back(std::move(encoder));
    }
    MeasureLoads(job_, layout_, llm_, encoders_, dummies, workspace_, llm, encoders);
    FillSamples();
    FillItems(dummies);
    plan_.phases.reserve(job_.phases.size());
    size_t next = 0;
    for (const PhaseSpec& spec : job_.phases) {
      plan_.phases.push_back(spec.phase == Phase::kLlm ? std::move(llm) : std::move(encoders[next++]));
    }
  }

  // At last, when all that there is to say of a sample, or of an item, is known: it is much, and written
  // once.
  void FillSamples() {
    const uint32_t *const tokens = llm_.tokens.data(), *const loss_tokens = llm_.loss_tokens.data(),
                          *const first_item = llm_.first_item.data(), *const rank = llm_.rank.data(),
                          *const microbatch = llm_.microbatch.data(), *const position = llm_.position.data();
    ReserveToWrite(plan_.samples, step_.refs.size());
    WriteAll(plan_.samples, step_.refs.size(), [=](size_t s) {
      return PlannedSample{.llm_length = tokens[s],
                           .loss_tokens = loss_tokens[s],
                           .first_item = first_item[s],
                           .num_items = first_item[s + 1] - first_item[s],
                           .place = {rank[s], microbatch[s], position[s]}};
    });
  }

  void FillItems(std::span<const PlannedItem> dummies) {
    const size_t items = num_items_ + dummies.size();
    ReserveToWrite(plan_.items, items);
    const EncoderOfMedium encoder_of = EncodersByMedium(layout_);
    struct Source {
      const uint32_t *sample, *length, *input_rows, *rows, *rank, *position;
      bool per_microbatch;
      size_t next = 0;
    };
    std::array<Source, kNumPhases> sources;  // by encoder
    for (size_t e = 0; e < encoders_.size(); ++e) {
      const EncoderUnits& units = encoders_[e];
      sources[e] = {units.sample.data(), units.length.data(),   units.input_rows.data(), units.rows.data(),
                    units.rank.data(),   units.position.data(), RunsPerMicrobatch(e)};
    }
    const uint32_t *const first_item = llm_.first_item.data(), *const microbatch = llm_.microbatch.data();
    const Medium* const media = llm_.medium.data();
    WriteAll(plan_.items, num_items_, [&](size_t item) {
      const Medium medium = media[item];
      Source& from = sources[static_cast<size_t>(encoder_of[static_cast<uint8_t>(medium)])];
      const size_t i = from.next++;
      const uint32_t s = from.sample[i];
      return PlannedItem{.sample = s,
                         .ordinal = static_cast<uint32_t>(item) - first_item[s],
                         .medium = medium,
                         .lengths = {from.length[i], from.input_rows[i], from.rows[i]},
                         .place = {from.rank[i], from.per_microbatch ? microbatch[s] : 0, from.position[i]}};
    });
    plan_.items.insert(plan_.items.end(), dummies.begin(), dummies.end());
  }

  const Job& job_;
  const StepSamples& step_;
  const DummyItems& dummies_;
  const PlanOptions& options_;
  const Layout layout_;
  const size_t num_items_;
  Workspace workspace_;
  Plan plan_;
  LlmUnits llm_;
  std::vector<EncoderUnits> encoders_;
};

}  // namespace

absl::StatusOr<Plan> MakePlan(const Job& job, const StepSamples& samples, const DummyItems& dummies) {
  return MakePlan(job, samples, dummies, PlanOptions());
}

absl::StatusOr<Plan> MakePlan(const Job& job, const StepSamples& samples, const DummyItems& dummies,
                              const PlanOptions& options) {
  EVENKEEL_ASSIGN_OR_RETURN(Layout layout, MakeLayout(job));
  EVENKEEL_ASSIGN_OR_RETURN(Plan plan, Planner(job, samples, dummies, options, std::move(layout)).Run());
#ifndef NDEBUG
  EVENKEEL_RETURN_IF_ERROR(PlanCheck(job, samples, plan));
#endif
  return plan;
}

}  // namespace evenkeel
