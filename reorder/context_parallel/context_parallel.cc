// Checks context-parallel problems and plans, computes the lower bound, and runs the chosen algorithm.
#include "reorder/context_parallel/context_parallel.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/by_name.h"
#include "reorder/context_parallel/context_parallel_problem.h"

namespace evenkeel::reorder {
namespace {

// The dynamic programme takes up to ranks^3 / 2 steps.
constexpr uint32_t kMaxRanks = 1u << 11;
constexpr uint64_t kAnyTokens = uint64_t{1} << 46;  // more than 2^14 of the longest sequences

struct NamedAlgorithm {
  std::string_view name;
  ContextParallelAlgorithm plan;
  bool powers_of_two = false;  // regardless of the input
};

constexpr NamedAlgorithm kAlgorithms[] = {{"regroup", Regroup},
                                          {"dhp", Dhp},
                                          {"static", StaticDegree},
                                          {"static_power_of_two", StaticDegree, true}};

const NamedAlgorithm* FindAlgorithm(std::string_view name) { return FindByName(kAlgorithms, name); }

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("context_parallel: ", parts...));
}
template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("context_parallel: ", parts...));
}

// Small enough that no product or sum of them overflows a double.
bool IsUsable(double value) { return value >= 0 && value <= 1e30; }

absl::Status CheckInput(const ContextParallelInput& input) {
  if (input.ranks == 0 || input.ranks > kMaxRanks) {
    return Bad("ranks must be 1 to ", kMaxRanks, ", got ", input.ranks);
  }
  const ContextParallelCost& cost = input.cost;
  const std::pair<const char*, double> numbers[] = {{"cost.attention", cost.attention},
                                                    {"cost.linear", cost.linear},
                                                    {"cost.constant", cost.constant},
                                                    {"cost.ring", cost.ring},
                                                    {"cost.ring_constant", cost.ring_constant},
                                                    {"cost.ring_between_nodes", cost.ring_between_nodes},
                                                    {"memory_per_rank", input.memory_per_rank},
                                                    {"model_states", input.model_states},
                                                    {"memory_per_token", input.memory_per_token}};
  for (const auto& [name, value] : numbers) {
    if (!IsUsable(value)) return Bad(name, " is ", value, "; expected a number from 0 to 1e30");
  }
  if (cost.ring_between_nodes > 0 && cost.ring_between_nodes < cost.ring) {
    return Bad("cost.ring_between_nodes is ", cost.ring_between_nodes, ", less than cost.ring, ", cost.ring,
               "; give no less, or 0 for the same");
  }
  for (size_t i = 0; i < input.degrees.size(); ++i) {
    const uint32_t least = i == 0 ? 1 : input.degrees[i - 1] + 1;
    if (input.powers_of_two || input.degrees[i] < least || input.degrees[i] > input.ranks) {
      return Bad("degrees must ascend from 1 to ", input.ranks, ", without powers_of_two; got ",
                 input.degrees[i]);
    }
  }
  for (size_t s = 0; s < input.sequences.size(); ++s) {
    const double factor = input.sequences[s].mask_factor;
    if (!(factor > -1) || !IsUsable(1 + factor)) {
      return Bad("sequence ", s, ": mask_factor is ", factor, "; expected a number above -1, at most 1e30");
    }
  }
  if (FindAlgorithm(input.algorithm) == nullptr) {
    return Bad("algorithm '", input.algorithm, "' is unknown; expected one of ",
               ContextParallelAlgorithmNames());
  }
  return absl::OkStatus();
}

uint64_t TokensPerRank(const ContextParallelInput& input) {
  if (input.memory_per_token == 0) return kAnyTokens;
  const double tokens = std::floor((input.memory_per_rank - input.model_states) / input.memory_per_token);
  if (!(tokens >= 1)) return 0;
  return tokens >= static_cast<double>(kAnyTokens) ? kAnyTokens : static_cast<uint64_t>(tokens);
}

}  // namespace

ContextParallelProblem MakeProblem(const ContextParallelInput& input) {
  const NamedAlgorithm* named = FindAlgorithm(input.algorithm);
  ContextParallelProblem problem{.ranks = input.ranks,
                                 .tokens_per_rank = TokensPerRank(input),
                                 .powers_of_two = input.powers_of_two || named->powers_of_two,
                                 .constant = input.cost.constant,
                                 .ring_constant = input.cost.ring_constant};
  if (!input.degrees.empty()) problem.Allow(input.degrees, named->powers_of_two);
  const double slowest = std::max(input.cost.ring, input.cost.ring_between_nodes);
  if (input.ranks_per_node > 0 && slowest > 0 && input.cost.ring_between_nodes > 0) {
    problem.ranks_per_node = input.ranks_per_node;
    problem.ring_within_node = input.cost.ring / slowest;
  }
  const double ring = problem.ring_within_node < 1 ? slowest : input.cost.ring;
  for (const ContextParallelSequence& sequence : input.sequences) {
    const double tokens = sequence.tokens;
    problem.sequences.push_back(
        {.attention = input.cost.attention * (1 + sequence.mask_factor) * tokens * tokens,
         .linear = input.cost.linear * tokens,
         .ring = ring * tokens,
         .tokens = sequence.tokens});
  }
  return problem;
}

namespace {

absl::Status CheckMemory(const ContextParallelProblem& problem) {
  if (problem.tokens_per_rank == 0) {
    return Bad("memory_per_rank less model_states has no room for a token of memory_per_token");
  }
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    if (problem.LeastDegree(problem.sequences[s].tokens) <= problem.ranks) continue;
    return Bad("sequence ", s, " has ", problem.sequences[s].tokens, " tokens; ", problem.ranks,
               " ranks hold ", problem.tokens_per_rank, " each",
               problem.powers_of_two ? ", in groups of powers of two"
               : !problem.at_least.empty()
                   ? absl::StrCat(", in groups of ", problem.LargestDegree(), " ranks at most")
                   : std::string(),
               "; use more ranks or memory, or leave out the sequence");
  }
  return absl::OkStatus();
}

// A lower bound of any plan's time: all work spread over all ranks, or the heaviest sequence at its best
// degree. Memory requires a certain number of microbatches, and each adds a group's constant.
double Bound(const ContextParallelProblem& problem) {
  double work = 0, heaviest = 0;
  uint64_t tokens = 0;
  for (const GroupLoad& sequence : problem.sequences) {
    work += sequence.Work() / problem.ranks;
    tokens += sequence.tokens;
    heaviest = std::max(heaviest, problem.BestTime(sequence));
  }
  if (problem.sequences.empty()) return 0;
  const uint64_t holds = problem.ranks * problem.tokens_per_rank;
  const uint64_t microbatches = std::max<uint64_t>(1, tokens / holds + (tokens % holds != 0));
  // Sums in another order may differ in their last digits.
  constexpr double kRounding = 1 - 1e-9;
  return std::max(work + static_cast<double>(microbatches) * problem.constant, heaviest) * kRounding;
}

ContextParallelPlan ToPlan(const ContextParallelProblem& problem,
                           const std::vector<Microbatch>& microbatches) {
  ContextParallelPlan plan;
  for (const Microbatch& microbatch : microbatches) {
    ContextParallelMicrobatch& planned = plan.microbatches.emplace_back();
    for (const Group& group : microbatch) {
      ContextParallelGroup& out = planned.groups.emplace_back();
      out.degree = group.degree;
      out.sequences = group.sequences;
      std::sort(out.sequences.begin(), out.sequences.end());
      out.time = TimeAsPlanned(problem, group);
      planned.time = std::max(planned.time, out.time);
    }
    // Large groups first, so that groups of powers of two have consecutive, aligned ranks.
    std::stable_sort(planned.groups.begin(), planned.groups.end(),
                     [](const auto& a, const auto& b) { return a.degree > b.degree; });
    plan.time += planned.time;
  }
  plan.bound = Bound(problem);
  return plan;
}

absl::Status CheckGroup(const ContextParallelProblem& problem, const ContextParallelGroup& group,
                        std::vector<uint32_t>& times_seen) {
  if (group.sequences.empty()) return Broken("a group without sequences");
  for (uint32_t s : group.sequences) {
    if (s >= problem.sequences.size() || times_seen[s]++ > 0) {
      return Broken("sequence ", s, " is unknown or listed twice");
    }
  }
  if (group.degree == 0 || (problem.powers_of_two && (group.degree & (group.degree - 1)) != 0) ||
      problem.AtLeast(group.degree) != group.degree) {
    return Broken("degree ", group.degree, " is not allowed");
  }
  const GroupLoad load = LoadOf(problem, group.sequences);
  if (load.tokens > group.degree * problem.tokens_per_rank) {
    return Broken(load.tokens, " tokens on ", group.degree, " ranks that hold ", problem.tokens_per_rank,
                  " each");
  }
  const double time = problem.Time(load, group.degree);
  if (std::abs(group.time - time) > 1e-9 * time) {
    return Broken("a group has time ", group.time, ", should be ", time);
  }
  return absl::OkStatus();
}

}  // namespace

std::string ContextParallelAlgorithmNames() { return NamesOf(kAlgorithms); }

absl::Status CheckContextParallel(const ContextParallelInput& input) {
  EVENKEEL_RETURN_IF_ERROR(CheckInput(input));
  return CheckMemory(MakeProblem(input));
}

absl::StatusOr<ContextParallelPlan> PlanContextParallel(const ContextParallelInput& input) {
  EVENKEEL_RETURN_IF_ERROR(CheckContextParallel(input));
  const ContextParallelProblem problem = MakeProblem(input);
  return ToPlan(problem, FindAlgorithm(input.algorithm)->plan(problem));
}

absl::Status ContextParallelCheck(const ContextParallelInput& input, const ContextParallelPlan& plan) {
  if (!CheckInput(input).ok()) return Broken("a plan of an invalid problem");
  const ContextParallelProblem problem = MakeProblem(input);
  std::vector<uint32_t> times_seen(problem.sequences.size(), 0);
  double time = 0;
  for (const ContextParallelMicrobatch& microbatch : plan.microbatches) {
    uint64_t ranks = 0;
    double slowest = 0;
    for (const ContextParallelGroup& group : microbatch.groups) {
      EVENKEEL_RETURN_IF_ERROR(CheckGroup(problem, group, times_seen));
      ranks += group.degree;
      slowest = std::max(slowest, group.time);
    }
    if (ranks == 0 || ranks > problem.ranks) {
      return Broken("a microbatch on ", ranks, " of ", problem.ranks, " ranks");
    }
    if (microbatch.time != slowest) return Broken("a microbatch's time differs from its slowest group's");
    time += microbatch.time;
  }
  const auto missing = std::find(times_seen.begin(), times_seen.end(), 0u);
  if (missing != times_seen.end()) {
    return Broken("sequence ", missing - times_seen.begin(), " is in no group");
  }
  if (plan.time != time || plan.time < plan.bound) {
    return Broken("time ", plan.time, ", microbatches take ", time, ", bound ", plan.bound);
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::reorder
