// The stages of a plan, one after the other, each over all encoder phases of the layout.
#include "reorder/plan_phases.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "reorder/balance/balance.h"
#include "reorder/keyed_shuffle.h"
#include "reorder/loads.h"
#include "reorder/microbatch/bins.h"
#include "reorder/microbatch/microbatches.h"
#include "reorder/pipeline/pipeline_order.h"
#include "reorder/pipeline/step_time.h"
#include "reorder/step_groups.h"

namespace evenkeel::reorder {
namespace {

std::string NamesThatKeepCounts() {
  std::vector<std::string> names;
  for (const Balancer& balancer : Balancers()) {
    if (balancer.keeps_counts_equal) names.emplace_back(balancer.name);
  }
  return absl::StrJoin(names, ", ");
}

absl::Status CheckGivenRanks(std::span<const uint32_t> llm_rank, size_t samples, uint32_t ranks,
                             bool equal_counts) {
  if (llm_rank.empty()) return absl::OkStatus();
  if (llm_rank.size() != samples) {
    return absl::InvalidArgumentError(
        absl::StrCat("the llm placement has ", llm_rank.size(), " ranks for ", samples, " samples"));
  }
  for (size_t s = 0; s < llm_rank.size(); ++s) {
    if (llm_rank[s] < ranks) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("sample ", s, " is placed on llm rank ", llm_rank[s], " of ", ranks));
  }
  if (!equal_counts) return absl::OkStatus();
  std::vector<size_t> count(ranks, 0);
  for (uint32_t r : llm_rank) ++count[r];
  const auto [fewest, most] = std::minmax_element(count.begin(), count.end());
  if (*most - *fewest > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "phase llm: equal_counts cannot be kept, since the given llm placement has ", *most,
        " samples on rank ", most - count.begin(), " and ", *fewest, " on rank ", fewest - count.begin(),
        "; leave equal_counts out, or give a placement with counts that differ by at most 1"));
  }
  return absl::OkStatus();
}

void SetOptions(const PhaseSpec& spec, double default_tolerance, BalanceProblem& problem) {
  problem.tolerance = spec.tolerance.value_or(default_tolerance);
  problem.weighs_rows = !spec.tolerance.has_value();
  problem.equal_counts = spec.equal_counts;
  problem.padded_attention = spec.padded_attention;
  const bool is_packed = spec.batching == Batching::kPacked && !spec.padded_attention;
  problem.capacity = is_packed ? spec.capacity : 0;
}

// [ranks] What the ranks hold of one exchange, or of the llm in a step: the sums of lengths, of an encoder's padded batches
// with the padding.
std::vector<Load> HeldLengths(const PhaseSpec& spec, std::span<const uint32_t> length,
                              std::span<const uint32_t> rank, size_t ranks) {
  const std::vector<Load> lengths(length.begin(), length.end());
  const bool is_one_batch = spec.phase != Phase::kLlm;  // the llm's samples are cut into microbatches
  if (is_one_batch && spec.batching == Batching::kPadded) return PaddedLoads(lengths, rank, ranks);
  std::vector<Load> held(ranks, 0);
  for (size_t i = 0; i < lengths.size(); ++i) held[rank[i]] += lengths[i];
  return held;
}

// What the fullest rank holds.
uint64_t MostHeld(const PhaseSpec& spec, std::span<const uint32_t> length, std::span<const uint32_t> rank,
                  size_t ranks) {
  const std::vector<Load> held = HeldLengths(spec, length, rank, ranks);
  return static_cast<uint64_t>(*std::max_element(held.begin(), held.end()));
}

// `sample`: that of each unit.
absl::Status CapacityExceeded(const PhaseSpec& spec, uint64_t most, std::span<const uint32_t> length,
                              std::span<const uint32_t> sample) {
  const uint64_t ranks = spec.ranks.size();
  const uint64_t total = std::accumulate(length.begin(), length.end(), uint64_t{0});
  const auto longest = std::max_element(length.begin(), length.end());
  const uint64_t least = (total + ranks - 1) / ranks;
  std::string why = "no placement was found that keeps it";
  if (*longest > spec.capacity) {
    why =
        absl::StrCat("one of sample ", sample[longest - length.begin()], " of the step alone has ", *longest);
  } else if (least > spec.capacity) {
    why = absl::StrCat("no placement holds less than ", least);
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("phase ", std::string(PhaseName(spec.phase)), ": a rank would hold ", most - spec.capacity,
                   " more than the capacity of ", spec.capacity, "; ", why,
                   "; take fewer samples a step, more ranks, or a larger capacity"));
}

class PhasesPlanner {
 public:
  PhasesPlanner(const Job& job, const Layout& layout, uint64_t step, const PlanOptions& options,
                LlmUnits& llm, std::vector<EncoderUnits>& encoders)
      : job_(job),
        layout_(layout),
        step_(step),
        options_(options),
        llm_(llm),
        encoders_(encoders),
        pipeline_(job, *layout.llm, layout.encoders) {}

  absl::StatusOr<PlannedPhases> Run() {
    EVENKEEL_RETURN_IF_ERROR(CheckGivenRanks(options_.llm_rank, llm_.tokens.size(), layout_.llm_ranks.size(),
                                             layout_.llm->equal_counts));
    EVENKEEL_RETURN_IF_ERROR(CheckOptions(*layout_.llm));
    for (const PhaseSpec* spec : layout_.encoders) EVENKEEL_RETURN_IF_ERROR(CheckOptions(*spec));
    EVENKEEL_RETURN_IF_ERROR(CheckSums());
    EVENKEEL_RETURN_IF_ERROR(CheckBins());
    FillCosts();
    if (IsGrouped()) {
      EVENKEEL_RETURN_IF_ERROR(PlaceInGroups());
    } else if (IsPacked()) {
      PlaceBins();
    } else {
      PlaceSamples();
    }
    EVENKEEL_RETURN_IF_ERROR(CheckCapacityOfLlm());
    EVENKEEL_RETURN_IF_ERROR(FillMicrobatches(Level::kEachPhase));
    if (ComparesSplits()) EVENKEEL_RETURN_IF_ERROR(TakeFastestSplit());
    Arrange();
    return std::move(planned_);
  }

 private:
  // In what the microbatches of a rank are alike: in each phase, in the time of all phases together, or in the llm.
  enum class Level { kEachPhase, kAllTogether, kLlm };

  // Everything that the split into microbatches decides.
  struct Filled {
    uint32_t num_microbatches = 1;
    std::vector<uint32_t> microbatch;              // [samples]
    std::vector<std::vector<uint32_t>> item_rank;  // [encoders][items]
    MethodsTaken methods;
  };

  bool RunsPerMicrobatch(size_t e) const { return layout_.encoders[e]->runs == Runs::kOncePerMicrobatch; }

  bool IsPacked() const { return !llm_.bin_begin.empty(); }

  bool IsGrouped() const { return job_.groups.given; }

  // Every wave of groups is a microbatch; a group's samples are on its first rank.
  absl::Status PlaceInGroups() {
    if (IsPacked() || !options_.llm_rank.empty() || options_.microbatches_in_order) {
      return absl::InvalidArgumentError(
          "topology.context_parallel: dynamic places the samples itself; bins, a given placement and "
          "microbatches in "
          "order need static groups");
    }
    EVENKEEL_ASSIGN_OR_RETURN(StepGroups step, PlanStepGroups(job_, layout_, llm_, encoders_));
    planned_.num_microbatches = step.num_microbatches;
    planned_.groups = std::move(step.groups);
    llm_.rank = std::move(step.rank);
    llm_.microbatch = std::move(step.microbatch);
    return absl::OkStatus();
  }

  absl::Status CheckBins() const {
    if (!IsPacked()) return absl::OkStatus();
    const size_t bins = llm_.bin_begin.size() - 1, ranks = layout_.llm_ranks.size();
    if (!options_.llm_rank.empty()) {
      return absl::InvalidArgumentError(
          "bins and a given placement of the llm exclude each other; give one of them");
    }
    if (bins > 0 && bins % ranks == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("a step of ", bins, " bins cannot be dealt to the llm's ", ranks,
                     " ranks; batch.pack.bins or batch.chunk.count must be a multiple of them"));
  }

  // Every bin is a microbatch of a rank.
  void PlaceBins() {
    const auto begin = llm_.bin_begin;
    const size_t bins = begin.size() - 1;
    std::vector<std::vector<Load>> loads(1 + encoders_.size(), std::vector<Load>(bins, 0));
    for (size_t b = 0; b < bins; ++b) {
      for (uint32_t s = begin[b]; s < begin[b + 1]; ++s) {
        loads[0][b] += llm_.load[s];
        for (size_t e = 0; e < encoders_.size(); ++e) loads[1 + e][b] += encoders_[e].load_of_sample[s];
      }
    }
    const uint32_t ranks = layout_.llm_ranks.size();
    const DealtBins dealt = options_.microbatches_in_order
                                ? DealBinsInOrder(static_cast<uint32_t>(bins), ranks)
                                : DealBins(loads, ranks);
    planned_.num_microbatches = dealt.num_microbatches;
    llm_.rank.resize(llm_.tokens.size());
    llm_.microbatch.resize(llm_.tokens.size());
    for (size_t b = 0; b < bins; ++b) {
      for (uint32_t s = begin[b]; s < begin[b + 1]; ++s) {
        llm_.rank[s] = dealt.rank[b];
        llm_.microbatch[s] = dealt.microbatch[b];
      }
    }
  }

  absl::Status CheckSums() const {
    if (!job_.phases_add_up) return absl::OkStatus();
    const auto is_packed = [](const PhaseSpec& spec) {
      return spec.batching == Batching::kPacked && !spec.padded_attention;
    };
    if ((encoders_.empty() || NothingMoves()) &&
        std::all_of(job_.phases.begin(), job_.phases.end(), is_packed)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        "ranks_meet: end_of_step adds the costs of a rank's phases, which an exchange of rows or padding "
        "would not let it "
        "do: give every encoder phase the algorithm none and packed batches, or leave ranks_meet out");
  }

  void FillCosts() {
    llm_.load = LoadsOf(layout_.llm->cost, layout_.llm->batching, llm_.tokens, llm_.chosen);
    for (size_t e = 0; e < encoders_.size(); ++e) {
      EncoderUnits& units = encoders_[e];
      units.load = LoadsOf(layout_.encoders[e]->cost, layout_.encoders[e]->batching, units.length);
      units.load_of_sample.assign(llm_.tokens.size(), 0);
      for (size_t i = 0; i < units.load.size(); ++i) units.load_of_sample[units.sample[i]] += units.load[i];
    }
  }

  void PlaceSamples() {
    if (!options_.llm_rank.empty()) {
      llm_.rank.assign(options_.llm_rank.begin(), options_.llm_rank.end());
      return;
    }
    BalanceProblem problem{.ranks = &layout_.llm_ranks,
                           .batching = layout_.llm->batching,
                           .cost = llm_.load,
                           .length = llm_.tokens};
    SetOptions(*layout_.llm, kTolerance, problem);
    if (job_.phases_add_up) {
      const std::vector<Load> sums = AsLoads(CostsOfSamples());
      problem.cost = sums;
      llm_.rank = Assign(*layout_.llm, problem);
      return;
    }
    if (problem.batching == Batching::kPadded) problem.batches_per_rank = PaddedBatchesPerRank();
    if (options_.llm_by_encoders && !encoders_.empty()) {
      const std::vector<Load> of_encoders = AsLoads(EncoderCostsOfSamples());
      problem.cost = of_encoders;
      llm_.rank = Assign(*layout_.llm, problem);
      return;
    }
    for (size_t e = 0; e < encoders_.size(); ++e) {
      const PhaseSpec& spec = *layout_.encoders[e];
      if (spec.batching == Batching::kPacked && FindBalancer(spec.algorithm)->keeps_items_on_home_rank &&
          layout_.neighbours[e].can_be_co_balanced) {
        problem.co_balanced.push_back(encoders_[e].load_of_sample);
      }
    }
    problem.co_balanced_stay = NothingMoves();
    llm_.rank = Assign(*layout_.llm, problem);
  }

  // By the phase's algorithm, within its capacity where that can be.
  std::vector<uint32_t> Assign(const PhaseSpec& spec, BalanceProblem problem) const {
    std::string_view taken = spec.algorithm;
    problem.taken = &taken;
    const Balancer& balancer = *FindBalancer(spec.algorithm);
    std::vector<uint32_t> rank = balancer.assign(problem);
    if (!problem.ItemsHaveHomes() || !Stays(spec)) rank = KeepCapacity(problem, std::move(rank));
    // Where batches are padded, the most that is tried is to be as even as can be.
    if (spec.capacity > 0 && problem.capacity == 0 && problem.tolerance > 0 && !rank.empty() &&
        MostHeld(spec, problem.length, rank, problem.ranks->size()) > spec.capacity) {
      problem.tolerance = 0;
      rank = balancer.assign(problem);
    }
    if (options_.methods != nullptr) (*options_.methods)[spec.phase].emplace(taken);
    return rank;
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

  // Microbatches, their order, and the ranks of the items.
  absl::Status FillMicrobatches(Level level) {
    for (uint32_t least = 1; least > 0;) {
      if (!IsPacked() && !IsGrouped()) Split(level, least);
      EVENKEEL_RETURN_IF_ERROR(Order());
      for (size_t e = 0; e < encoders_.size(); ++e) PlaceItems(e);
      EVENKEEL_ASSIGN_OR_RETURN(least, MicrobatchesThatCapacitiesTake());
    }
    return absl::OkStatus();
  }

  // Where the job describes its pipeline, the time of a step decides between splits. Padded microbatches are cut by
  // their lengths alone, and microbatches of one sample in one way.
  bool ComparesSplits() const {
    const bool has_encoder = pipeline_.num_columns() > 1;
    const std::string& order = OrderAlgorithm();
    return has_encoder && job_.pipeline.given && options_.compares_splits &&
           !options_.microbatches_in_order && !IsPacked() && layout_.llm->batching == Batching::kPacked &&
           pipeline_.num_stages() > 1 && order != "given" && order != "random" &&
           planned_.num_microbatches > 1 && MostSamplesOfARank() > planned_.num_microbatches;
  }

  // Of all ways to level microbatches that take no more of them, that with the shortest simulated step; of equal ones the
  // first.
  absl::Status TakeFastestSplit() {
    double fastest = StepTime();
    for (const Level level : {Level::kAllTogether, Level::kLlm}) {
      Filled before = Keep();
      const absl::Status status = FillMicrobatches(level);
      if (!status.ok() && !absl::IsResourceExhausted(status)) return status;
      const bool fits = status.ok() && planned_.num_microbatches <= before.num_microbatches;
      const double time = fits ? StepTime() : fastest;
      if (time < fastest) {
        fastest = time;
      } else {
        Restore(std::move(before));
      }
    }
    return absl::OkStatus();
  }

  double StepTime() const {
    return PipelineStepTime(pipeline_, layout_, encoders_, planned_.num_microbatches, llm_);
  }

  Filled Keep() const {
    Filled filled{.num_microbatches = planned_.num_microbatches, .microbatch = llm_.microbatch};
    for (const EncoderUnits& units : encoders_) filled.item_rank.push_back(units.rank);
    if (options_.methods != nullptr) filled.methods = *options_.methods;
    return filled;
  }

  void Restore(Filled filled) {
    planned_.num_microbatches = filled.num_microbatches;
    llm_.microbatch = std::move(filled.microbatch);
    for (size_t e = 0; e < encoders_.size(); ++e) encoders_[e].rank = std::move(filled.item_rank[e]);
    if (options_.methods != nullptr) *options_.methods = std::move(filled.methods);
  }

  // Into at least `least` microbatches a rank.
  void Split(Level level, uint32_t least) {
    SplitProblem problem{.num_ranks = layout_.llm_ranks.size(),
                         .rank = llm_.rank,
                         .tokens = llm_.tokens,
                         .cost = llm_.load,
                         .batching = layout_.llm->batching,
                         .capacity_tokens = CapacityTokens(job_),
                         .least_count = least,
                         .count_multiple = job_.microbatch.count_multiple};
    for (size_t e = 0; e < encoders_.size() && level == Level::kEachPhase; ++e) {
      if (RunsPerMicrobatch(e)) problem.co_balanced.push_back(encoders_[e].load_of_sample);
    }
    std::vector<Load> together;
    if (level == Level::kAllTogether) problem.cost = together = AsLoads(SecondsOfSamples());
    const std::vector<double> met_cost = IsDropIn() ? CostsOfSamples() : std::vector<double>();
    problem.met_cost = met_cost;
    reorder::Split split =
        options_.microbatches_in_order ? FillInOrder(problem) : SplitIntoMicrobatches(problem);
    planned_.num_microbatches = split.num_microbatches;
    llm_.microbatch = std::move(split.microbatch);
  }

  // What `balance: drop_in` of a job stands for, without a pipeline: every encoder runs inside the llm's
  // forward, microbatch by microbatch.
  bool IsDropIn() const {
    for (size_t e = 0; e < encoders_.size(); ++e) {
      if (!RunsPerMicrobatch(e)) return false;
    }
    return NothingMoves() && job_.pipeline_stages == 1 && layout_.llm->algorithm == kDefaultAlgorithm;
  }

  // Whether the items of an encoder are computed where their samples are, whatever that costs.
  static bool Stays(const PhaseSpec& spec) { return spec.algorithm == "none"; }
  bool NothingMoves() const {
    const auto stays = [](const PhaseSpec* spec) { return Stays(*spec); };
    return !encoders_.empty() && std::all_of(layout_.encoders.begin(), layout_.encoders.end(), stays);
  }

  double LlmCostOf(size_t s) const { return CleanCost(layout_.llm->cost, llm_.tokens[s], llm_.ChosenOf(s)); }
  // [samples] Added over the phases, in the job's units.
  std::vector<double> CostsOfSamples() const {
    std::vector<double> cost;
    for (size_t s = 0; s < llm_.tokens.size(); ++s) cost.push_back(LlmCostOf(s));
    for (size_t e = 0; e < encoders_.size(); ++e) AddEncoderCosts(e, cost);
    return cost;
  }
  std::vector<double> EncoderCostsOfSamples() const {
    std::vector<double> cost(llm_.tokens.size(), 0);
    for (size_t e = 0; e < encoders_.size(); ++e) AddEncoderCosts(e, cost);
    return cost;
  }
  // [samples] Forward and backward in all stages of the pipeline.
  std::vector<double> SecondsOfSamples() const {
    std::vector<double> seconds;
    for (size_t s = 0; s < llm_.tokens.size(); ++s) {
      seconds.push_back(pipeline_.Seconds(std::nullopt, LlmCostOf(s)));
    }
    for (size_t e = 0; e < encoders_.size(); ++e) {
      if (!pipeline_.ColumnOfEncoder(e).has_value()) continue;
      AddEncoderCosts(e, seconds, [&](double cost) { return pipeline_.Seconds(e, cost); });
    }
    return seconds;
  }
  // Adds `priced(cost)` of every item to its sample.
  template <typename Priced = std::identity>
  void AddEncoderCosts(size_t e, std::vector<double>& cost, const Priced& priced = {}) const {
    const EncoderUnits& units = encoders_[e];
    for (size_t i = 0; i < units.item.size(); ++i) {
      cost[units.sample[i]] += priced(CleanCost(layout_.encoders[e]->cost, units.length[i]));
    }
  }

  // The same as integers.
  static std::vector<Load> AsLoads(const std::vector<double>& cost) {
    const Scale scale(std::accumulate(cost.begin(), cost.end(), 0.0));
    std::vector<Load> loads;
    for (double value : cost) loads.push_back(scale(value));
    return loads;
  }

  const std::string& OrderAlgorithm() const {
    return options_.microbatch_order.empty() ? job_.pipeline.order : options_.microbatch_order;
  }

  absl::Status Order() {
    if (pipeline_.num_stages() == 1 || planned_.num_microbatches == 1) return absl::OkStatus();
    return OrderForPipeline(pipeline_, layout_, encoders_,
                            {.algorithm = OrderAlgorithm(), .seed = job_.seed + step_},
                            planned_.num_microbatches, llm_);
  }

  void PlaceItems(size_t e) {
    EncoderUnits& units = encoders_[e];
    if (options_.methods != nullptr) options_.methods->erase(layout_.encoders[e]->phase);
    const std::vector<std::vector<uint32_t>> exchanges = ExchangesOf(e);
    units.rank.resize(units.item.size());
    BatchesInTurn in_turn(Interchangeable(e));
    for (const std::vector<uint32_t>& items : exchanges) {
      std::vector<uint32_t> home, length, rows;
      std::vector<Load> load;
      for (uint32_t i : items) {
        home.push_back(llm_.rank[units.sample[i]]);
        load.push_back(units.load[i]);
        length.push_back(units.length[i]);
        rows.push_back(units.rows[i]);
      }
      std::vector<uint32_t> rank = PlaceExchange(e, home, load, length, rows);
      if (exchanges.size() > 1) in_turn.Rename(layout_.encoders[e]->batching, load, rank);
      for (size_t k = 0; k < items.size(); ++k) units.rank[items[k]] = rank[k];
    }
  }

  // Where the phase runs once per microbatch, the items of every microbatch index run in one exchange. [exchanges][items]
  std::vector<std::vector<uint32_t>> ExchangesOf(size_t e) const {
    const EncoderUnits& units = encoders_[e];
    const bool several = RunsPerMicrobatch(e) && planned_.num_microbatches > 1;
    std::vector<std::vector<uint32_t>> exchanges(several ? planned_.num_microbatches : 1);
    for (uint32_t i = 0; i < units.item.size(); ++i) {
      exchanges[several ? llm_.microbatch[units.sample[i]] : 0].push_back(i);
    }
    return exchanges;
  }

  // Of all its samples of a step; microbatches have a capacity of their own.
  absl::Status CheckCapacityOfLlm() const {
    const PhaseSpec& spec = *layout_.llm;
    if (spec.capacity == 0 || llm_.tokens.empty()) return absl::OkStatus();
    const uint64_t most = MostHeld(spec, llm_.tokens, llm_.rank, spec.ranks.size());
    if (most <= spec.capacity) return absl::OkStatus();
    return CapacityExceeded(spec, most, llm_.tokens, InOrder(llm_.tokens.size()));
  }

  // Into how many microbatches the step must be cut for every phase that runs once per microbatch to keep its capacity;
  // 0: all keep theirs. More microbatches than the samples of a rank make no exchange smaller.
  absl::StatusOr<uint32_t> MicrobatchesThatCapacitiesTake() const {
    uint32_t wanted = 0;
    for (size_t e = 0; e < encoders_.size(); ++e) {
      const PhaseSpec& spec = *layout_.encoders[e];
      if (spec.capacity == 0) continue;
      const uint32_t most_samples = MostSamplesOfARank();
      const bool may_grow = RunsPerMicrobatch(e) && !options_.microbatches_in_order && !IsPacked() &&
                            !IsGrouped() && planned_.num_microbatches < most_samples;
      for (const std::vector<uint32_t>& items : ExchangesOf(e)) {
        std::vector<uint32_t> length, rank, sample;
        for (uint32_t i : items) {
          length.push_back(encoders_[e].length[i]);
          rank.push_back(encoders_[e].rank[i]);
          sample.push_back(encoders_[e].sample[i]);
        }
        const uint64_t most = MostHeld(spec, length, rank, spec.ranks.size());
        if (most <= spec.capacity) continue;
        if (!may_grow) return CapacityExceeded(spec, most, length, sample);
        const uint64_t in_proportion = (planned_.num_microbatches * most - 1) / spec.capacity + 1;
        wanted = std::max(wanted, static_cast<uint32_t>(std::min<uint64_t>(in_proportion, most_samples)));
      }
    }
    return wanted;
  }

  uint32_t MostSamplesOfARank() const {
    std::vector<uint32_t> count(layout_.llm_ranks.size(), 0);
    for (uint32_t rank : llm_.rank) ++count[rank];
    return *std::max_element(count.begin(), count.end());
  }

  // [ranks] Ranks of the same number may exchange their batches, as far as the phase's algorithm is
  // concerned.
  std::vector<uint32_t> Interchangeable(size_t e) const {
    const PhaseSpec& spec = *layout_.encoders[e];
    const Balancer& balancer = *FindBalancer(spec.algorithm);
    const PhaseRanks& ranks = layout_.encoder_ranks[e];
    if (spec.node_wise || balancer.keeps_batches_on_node) return ranks.node;
    if (balancer.keeps_items_on_home_rank) return InOrder(ranks.size());
    return std::vector<uint32_t>(ranks.size(), 0);
  }

  // Balances the items that run in one exchange, given the llm rank of each; their ranks.
  std::vector<uint32_t> PlaceExchange(size_t e, std::span<const uint32_t> home, std::span<const Load> load,
                                      std::span<const uint32_t> length,
                                      std::span<const uint32_t> rows) const {
    const PhaseSpec& spec = *layout_.encoders[e];
    if (options_.apart_in_turn && Stays(spec) && AreApart(spec, *layout_.llm)) {
      std::vector<uint32_t> in_turn(home.size());
      for (uint32_t i = 0; i < in_turn.size(); ++i) in_turn[i] = i % layout_.encoder_ranks[e].size();
      return in_turn;
    }
    const bool is_given = !options_.llm_rank.empty();
    BalanceProblem problem{.ranks = &layout_.encoder_ranks[e],
                           .batching = spec.batching,
                           .cost = load,
                           .neighbours = &layout_.neighbours[e],
                           .home = home,
                           .homes_are_given = is_given,
                           .length = length,
                           .rows = rows};
    SetOptions(spec, is_given ? kToleranceOfGiven : kTolerance, problem);
    std::vector<uint32_t> rank = Assign(spec, problem);
    return spec.node_wise ? PermuteNodeWise(problem, rank) : rank;
  }

  // Positions, batches, routes and loads, once every unit has its rank and microbatch.
  void Arrange() {
    planned_.llm.ranks = layout_.llm->ranks;
    planned_.llm.num_microbatches = planned_.num_microbatches;
    OrderSamples(llm_, planned_.llm);
    size_t next_number = 0;
    for (const EncoderUnits& units : encoders_) next_number += units.item.size();
    for (size_t e = 0; e < encoders_.size(); ++e) {
      const PhaseSpec& spec = *layout_.encoders[e];
      PhasePlan& encoder = planned_.encoders.emplace_back();
      encoder.ranks = spec.ranks;
      encoder.num_microbatches = RunsPerMicrobatch(e) ? planned_.num_microbatches : 1;
      const GroupsOfRoute groups{planned_.groups, job_.IsSharedByGroups(spec)};
      planned_.routes.push_back(OrderItems(llm_, planned_.llm, groups, spec.min_items,
                                           static_cast<uint32_t>(next_number), encoders_[e], encoder));
      next_number += encoders_[e].dummies.size();
    }
    MeasureLoads(job_, layout_, llm_, encoders_, planned_.llm, planned_.encoders);
    if (IsGrouped()) MeasureGroupLoads(layout_.llm->cost, llm_, planned_.groups, planned_.llm);
  }

  const Job& job_;
  const Layout& layout_;
  const uint64_t step_;
  const PlanOptions& options_;
  LlmUnits& llm_;
  std::vector<EncoderUnits>& encoders_;
  const PipelineModel pipeline_;
  PlannedPhases planned_;
};

}  // namespace

absl::Status CheckOptions(const PhaseSpec& spec) {
  const std::string name(PhaseName(spec.phase));
  const bool padded = spec.batching == Batching::kPadded || spec.padded_attention;
  if (spec.equal_counts && padded) {
    return absl::InvalidArgumentError(absl::StrCat("phase ", name,
                                                   ": equal_counts cannot be kept where batches are padded; ",
                                                   "leave it out, or make the batching packed"));
  }
  if (spec.equal_counts && !FindBalancer(spec.algorithm)->keeps_counts_equal) {
    return absl::InvalidArgumentError(absl::StrCat("phase ", name, ": algorithm ", spec.algorithm,
                                                   " cannot keep counts equal; take one of ",
                                                   NamesThatKeepCounts(), ", or leave equal_counts out"));
  }
  if (spec.tolerance && !(*spec.tolerance >= 0 && *spec.tolerance < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("phase ", name, ": tolerance ", *spec.tolerance, " is not in [0, 1)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PlannedPhases> PlanPhases(const Job& job, const Layout& layout, uint64_t step,
                                         const PlanOptions& options, LlmUnits& llm,
                                         std::vector<EncoderUnits>& encoders) {
  return PhasesPlanner(job, layout, step, options, llm, encoders).Run();
}

}  // namespace evenkeel::reorder
