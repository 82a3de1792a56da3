// Random planning problems, small and nasty, from any source of numbers: shared by property tests and the
// fuzzer.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "reorder/balance/balance.h"
#include "reorder/keyed_shuffle.h"
#include "reorder/planner.h"
#include "tests/usual_phases.h"

namespace evenkeel::reorder {

struct RandomProblem {
  Job job;
  StepSamples step;
  DummyItems dummies;
};

// `below(n)`: a number in [0, n), 0 where n is 0.
using Below = std::function<uint64_t(uint64_t)>;

// Numbers that a fuzzer's bytes spell, as many bytes each as its bound needs; zeroes after the last.
inline Below BelowFrom(std::span<const uint8_t> data) {
  return [data](uint64_t bound) mutable -> uint64_t {
    uint64_t value = 0;
    for (uint64_t reach = 1; reach < bound && !data.empty(); reach <<= 8) {
      value = value << 8 | data.front();
      data = data.subspan(1);
    }
    return bound == 0 ? 0 : value % bound;
  };
}

// Numbers that are a function of a seed.
inline Below BelowFrom(uint64_t seed) {
  return [numbers = KeyedNumbers(seed)](uint64_t bound) mutable -> uint64_t {
    return bound == 0 ? 0 : numbers.Next() % bound;
  };
}

inline std::vector<uint32_t> DrawRanks(const Below& below, const std::vector<uint32_t>& llm) {
  std::vector<uint32_t> ranks;
  switch (llm.empty() ? 3 : below(4)) {
    case 0:  // the llm's
      return llm;
    case 1:  // more replicas: the llm's and the ones beside them
      for (uint32_t rank : llm) ranks.push_back(rank);
      for (uint32_t rank : llm) {
        if (std::find(ranks.begin(), ranks.end(), rank + 1) == ranks.end()) ranks.push_back(rank + 1);
      }
      return ranks;
    case 2:  // other machines
      for (uint32_t i = 0; i <= below(6); ++i) ranks.push_back(100 + i);
      return ranks;
    default:  // any, in any order
      for (uint32_t rank = 0; rank < 12; ++rank) {
        if (below(3) > 0) ranks.insert(ranks.begin() + static_cast<ptrdiff_t>(below(ranks.size() + 1)), rank);
      }
      if (ranks.empty()) ranks.push_back(static_cast<uint32_t>(below(12)));
      return ranks;
  }
}

inline uint32_t DrawLength(const Below& below, uint64_t kind) {
  switch (kind) {
    case 0:
      return 0;
    case 1:
      return 7;
    case 2:
      return static_cast<uint32_t>(below(12));
    case 3:
      return static_cast<uint32_t>(below(5000));
    case 4:
      return static_cast<uint32_t>(0xffffff00u - below(1000));
    default:
      return below(8) == 0 ? static_cast<uint32_t>(below(1000000)) : static_cast<uint32_t>(below(30));
  }
}

inline Cost DrawCost(const Below& below) {
  switch (below(4)) {
    case 0:
      return {.constant = 3, .linear = 1, .quadratic = 0.001, .mask_factor = 0.5};
    case 1:
      return {.constant = 0, .linear = 0, .quadratic = 1};
    case 2:
      return {.constant = static_cast<double>(below(2)), .linear = 0};
    default:
      return {};
  }
}

// Everything but the samples.
inline Job DrawJob(const Below& below) {
  static const char* const kOfJobs[] = {"balance_without_moving", "greedy_packed", "greedy_padded", "none"};
  Job job;
  job.ranks_per_node = static_cast<uint32_t>(below(5));
  std::vector<uint32_t> llm;
  for (Phase phase : kUsualPhases) {
    PhaseSpec spec;
    spec.phase = phase;
    spec.ranks = DrawRanks(below, llm);
    if (phase == Phase::kLlm) llm = spec.ranks;
    spec.cost = DrawCost(below);
    spec.batching = below(3) == 0 ? Batching::kPadded : Batching::kPacked;
    spec.runs = below(2) == 0 ? Runs::kOncePerStep : Runs::kOncePerMicrobatch;
    spec.algorithm = kOfJobs[below(2) == 0 ? 0 : below(4)];
    spec.min_items = below(3) == 0 ? static_cast<uint32_t>(below(3)) : 0;
    job.phases.push_back(spec);
  }
  job.microbatch.align = static_cast<uint32_t>(below(9));
  job.microbatch.count_multiple = static_cast<uint32_t>(below(4));
  return job;
}

// Any algorithm for every phase, also those that no job of the golden plans has.
inline void DrawAlgorithms(const Below& below, Job& job) {
  const std::span<const Balancer> balancers = Balancers();
  for (PhaseSpec& spec : job.phases) spec.algorithm = balancers[below(balancers.size())].name;
}

// Options that the job's algorithms can keep; `llm_rank` holds the placement where one is given.
inline PlanOptions DrawOptions(const Below& below, RandomProblem& problem, std::vector<uint32_t>& llm_rank) {
  PlanOptions options;
  for (PhaseSpec& spec : problem.job.phases) {
    if (below(2) == 0) spec.tolerance = below(2) == 0 ? 0 : 0.01 * static_cast<double>(below(50));
    spec.node_wise = below(3) == 0;
    spec.padded_attention = below(4) == 0;
    spec.equal_counts = FindBalancer(spec.algorithm)->keeps_counts_equal &&
                        spec.batching == Batching::kPacked && !spec.padded_attention && below(2) == 0;
  }
  if (below(3) == 0) {
    const size_t ranks = problem.job.phase(Phase::kLlm)->ranks.size();
    for (size_t s = 0; s < problem.step.refs.size(); ++s) {
      llm_rank.push_back(static_cast<uint32_t>(below(ranks)));
    }
    options.llm_rank = llm_rank;
    for (PhaseSpec& spec : problem.job.phases) {  // the given counts are not equal
      if (spec.phase == Phase::kLlm) spec.equal_counts = false;
    }
  }
  return options;
}

inline void DrawSamples(const Below& below, RandomProblem& problem) {
  const uint64_t samples = below(below(3) == 0 ? 4 : 60);
  const uint64_t kind = below(6), item_kind = below(6);
  for (uint64_t s = 0; s < samples; ++s) {
    SampleLengths lengths;
    lengths.llm_length = DrawLength(below, kind);
    lengths.loss_tokens = static_cast<uint32_t>(below(uint64_t{lengths.llm_length} + 1));
    for (uint64_t i = below(5); i > 1; --i) {
      const Medium medium = below(2) == 0 ? Medium::kAudio : below(2) == 0 ? Medium::kVideo : Medium::kImage;
      const uint32_t cost_length = DrawLength(below, item_kind);
      lengths.items.push_back({medium, {cost_length, cost_length, DrawLength(below, item_kind)}});
    }
    problem.step.refs.push_back({static_cast<uint32_t>(below(3)), below(2), s});
    problem.step.lengths.push_back(std::move(lengths));
  }
}

inline RandomProblem DrawProblem(const Below& below) {
  RandomProblem problem;
  problem.job = DrawJob(below);
  problem.step.step = below(1000);
  DrawSamples(below, problem);
  const Medium vision_dummy = below(2) == 0 ? Medium::kImage : Medium::kVideo;
  problem.dummies[kVisionPhase.number()] = {vision_dummy, {4, 4, 1}};
  problem.dummies[kAudioPhase.number()] = {Medium::kAudio, {2, 2, static_cast<uint32_t>(below(2))}};
  uint64_t longest = 1;
  const uint64_t align = std::max(1u, problem.job.microbatch.align);
  for (const SampleLengths& lengths : problem.step.lengths) {
    longest = std::max<uint64_t>(longest, (lengths.llm_length + align - 1) / align * align);
  }
  // Room for the longest, and somewhat more: many microbatches.
  if (below(2) == 0) problem.job.microbatch.capacity_tokens = longest + below(3) * below(longest);
  if (below(4) == 0) problem.job.microbatch.pad_to = longest + below(longest);
  return problem;
}

// A drawn problem with dynamic context groups, whose samples all fit into the largest.
inline RandomProblem DrawGrouped(const Below& below) {
  RandomProblem problem = DrawProblem(below);
  Job& job = problem.job;
  job.microbatch.capacity_tokens = job.microbatch.pad_to = 0;
  const uint32_t ranks = static_cast<uint32_t>(1 + below(10));
  for (PhaseSpec& spec : job.phases) {
    const std::vector<uint32_t> of_llm = job.phases[0].ranks;
    spec.ranks.clear();
    for (uint32_t r = 0; r < ranks; ++r) spec.ranks.push_back(3 * r);
    if (spec.phase == Phase::kLlm) {
      spec.batching = Batching::kPacked;
      spec.algorithm = kDefaultAlgorithm;
      spec.cost = {.constant = 0, .linear = 1, .quadratic = 0.01};
    } else if (below(4) == 0) {
      spec.ranks = DrawRanks(below, of_llm);
    }
  }
  GroupSpec& groups = job.groups;
  groups = {.given = true,
            .powers_of_two = below(2) == 0,
            .max_size = static_cast<uint32_t>(1 + below(ranks)),
            .pool = static_cast<uint32_t>(ranks + below(20)),
            .tokens_per_rank = 64 + below(200),
            .media_attend_fully = below(2) == 0};
  const char* const algorithms[] = {"regroup", "dhp", "static", "persistent"};
  groups.algorithm = algorithms[below(4)];
  groups.ring = 0.2 * static_cast<double>(below(4));
  if (groups.powers_of_two) groups.max_size = std::bit_floor(groups.max_size);
  groups.sizes = PoolSizes(ranks, groups);
  const uint64_t align = std::max(1u, job.microbatch.align);
  const uint64_t longest = uint64_t{groups.sizes.back()} * groups.tokens_per_rank / align * align;
  for (SampleLengths& lengths : problem.step.lengths) {
    const uint64_t within = below(3) == 0 ? longest : std::min<uint64_t>(longest, 90);
    lengths.llm_length = static_cast<uint32_t>(1 + below(within));
    lengths.loss_tokens = lengths.llm_length / 2;
    for (SampleItem& item : lengths.items) item.lengths.output_rows %= 40;
  }
  return problem;
}

// The plan of a drawn problem, by algorithms and options that are drawn too, which go into its job.
inline absl::StatusOr<Plan> DrawPlan(const Below& below, RandomProblem& problem) {
  DrawAlgorithms(below, problem.job);
  std::vector<uint32_t> llm_rank;
  const PlanOptions options = DrawOptions(below, problem, llm_rank);
  return MakePlan(problem.job, problem.step, problem.dummies, options);
}

}  // namespace evenkeel::reorder
