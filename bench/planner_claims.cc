// Rows of the table of figures that no time is in: rules that every solution keeps, and optima of small
// problems.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/planner_figures.h"
#include "reorder/balance/balance.h"
#include "reorder/context_parallel/context_parallel.h"
#include "reorder/pack/pack.h"
#include "reorder/pipeline/microbatch_order.h"
#include "tests/reorder/balance/exhaustive.h"
#include "tests/reorder/balance/make_ranks.h"
#include "tests/reorder/pack/random_packing.h"
#include "tests/reorder/pipeline/pipeline_problems.h"
#include "tests/reorder/random_problem.h"
#include "tests/reorder/solution_digest.h"

namespace {

using namespace evenkeel;  // NOLINT: a program

constexpr uint64_t kProblems = 10000;

uint64_t FirstSeed(uint64_t seed) { return (seed + 1) * 1000000; }  // those of the tests begin at 0

// The error of the solver, what the check of its solution says, and the solution in a digest.
struct Answer {
  absl::Status solved, checked;
  uint64_t digest = 0;
};

template <typename Solution>
Answer Checked(const absl::StatusOr<Solution>& solution, const std::function<absl::Status()>& check) {
  if (!solution.ok()) return {.solved = solution.status()};
  reorder::SolutionDigest digest;
  digest.Add(*solution);
  return {.checked = check(), .digest = digest.value()};
}

// Of ten thousand problems, those whose answer is wrong; and what must be the same on every build and CPU.
void PrintBroken(const std::string& kind, uint64_t seed, const std::function<Answer(uint64_t seed)>& answer) {
  int solved = 0, broken = 0;
  reorder::SolutionDigest all;
  for (uint64_t s = FirstSeed(seed); s < FirstSeed(seed) + kProblems; ++s) {
    const Answer given = answer(s);
    solved += given.solved.ok();
    const bool refused = absl::IsInvalidArgument(given.solved) || absl::IsResourceExhausted(given.solved);
    broken += given.solved.ok() ? !given.checked.ok() : !refused;
    all.Add(given.digest);
  }
  PrintFigure("1",
              absl::StrCat("10,000 random problems of ", kind, ", ", solved,
                           " with a solution: those that break a rule, or end in an error without a name"),
              broken, Limit::kAtMost, 0);
  PrintFact("1", "digest of their solutions, the same on every build and CPU",
            absl::StrFormat("%016x", all.value()));
}

Answer Balance(uint64_t seed) {
  const reorder::Below below = reorder::BelowFrom(seed);
  reorder::RandomProblem problem = reorder::DrawProblem(below);
  const auto plan = reorder::DrawPlan(below, problem);
  return Checked(plan, [&] { return reorder::PlanCheck(problem.job, problem.step, *plan); });
}

Answer Packs(uint64_t seed) {
  const reorder::PackInput input = reorder::DrawPackInput(reorder::BelowFrom(seed));
  const auto packing = reorder::Pack(input);
  return Checked(packing, [&] { return reorder::PackCheck(input, *packing); });
}

Answer Groups(uint64_t seed) {
  const reorder::ContextParallelInput input = reorder::DrawContextParallelInput(reorder::BelowFrom(seed));
  const auto plan = reorder::PlanContextParallel(input);
  return Checked(plan, [&] { return reorder::ContextParallelCheck(input, *plan); });
}

Answer Orders(uint64_t seed) {
  reorder::Random random(seed);
  const reorder::OrderProblem problem{.pipeline = reorder::DrawPipeline(random, 5, 14),
                                      .algorithm = seed % 3 == 0 ? "disttrain" : "local_search",
                                      .seed = seed,
                                      .iterations = 200};
  const auto outcome = reorder::SolveOrder(problem);
  return Checked(outcome, [&]() -> absl::Status {
    std::vector<uint32_t> sorted = outcome->order;
    std::sort(sorted.begin(), sorted.end());
    const double time = outcome->timeline.iteration_time;
    const bool kept = sorted == reorder::InOrder(problem.pipeline.num_microbatches()) &&
                      time >= outcome->bound * (1 - 1e-12) &&
                      (problem.algorithm == "disttrain" || time <= outcome->given_time);
    return kept ? absl::OkStatus() : absl::InternalError("order");
  });
}

}  // namespace

void PrintRules(uint64_t seed) {
  PrintBroken("balance", seed, Balance);
  PrintBroken("pack", seed, Packs);
  PrintBroken("context_parallel", seed, Groups);
  PrintBroken("order", seed, Orders);
}

void PrintSmallPadded(uint64_t seed) {
  reorder::Random random(seed + 51);
  int other = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t ranks = static_cast<uint32_t>(1 + random.Below(3));
    std::vector<reorder::Load> cost(1 + random.Below(7));
    for (reorder::Load& c : cost) c = 1 + static_cast<reorder::Load>(random.Below(i % 2 == 0 ? 8 : 1000));
    const reorder::PhaseRanks where = reorder::MakeRanks(ranks, 8);
    const reorder::BalanceProblem problem{.ranks = &where, .batching = Batching::kPadded, .cost = cost};
    other += reorder::Padded(cost, reorder::GreedyPadded(problem), ranks) !=
             reorder::Exhaustive(cost, ranks, reorder::Padded);
  }
  PrintFigure("5", "binary_search_padded: of 1,000 small problems, those not solved as all placements show",
              other, Limit::kAtMost, 0);
}
