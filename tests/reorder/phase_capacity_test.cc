// Capacities of encoder phases in the plans of jobs: kept in every exchange, by more microbatches where these help.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "reorder/planner.h"
#include "tests/reorder/random_problem.h"

namespace evenkeel::reorder {
namespace {

// What the fullest rank of a phase encodes at once, from the plan alone.
uint64_t Fullest(const PhaseSpec& spec, const Plan& plan) {
  const PhasePlan& phase = *plan.phase(spec.phase);
  uint64_t fullest = 0;
  for (size_t b = 0; b + 1 < phase.begin.size(); ++b) {
    uint64_t sum = 0, longest = 0, count = 0;
    for (uint32_t at = phase.begin[b]; at < phase.begin[b + 1]; ++at) {
      const PlannedItem& item = plan.items[phase.order[at]];
      if (item.sample == kDummy) continue;
      sum += item.lengths.cost_length;
      longest = std::max<uint64_t>(longest, item.lengths.cost_length);
      ++count;
    }
    fullest = std::max(fullest, spec.batching == Batching::kPadded ? count * longest : sum);
  }
  return fullest;
}

// Samples of 10 tokens, each with pictures of these lengths, over `ranks` ranks.
RandomProblem Pictures(uint32_t ranks, uint32_t samples, std::vector<uint32_t> lengths) {
  RandomProblem problem;
  for (const Phase& phase : {Phase::kLlm, kVisionPhase}) {
    PhaseSpec& spec = problem.job.phases.emplace_back();
    spec.phase = phase;
    for (uint32_t r = 0; r < ranks; ++r) spec.ranks.push_back(r);
  }
  for (uint64_t s = 0; s < samples; ++s) {
    SampleLengths sample{.llm_length = 10, .loss_tokens = 10, .items = {}};
    for (uint32_t length : lengths) sample.items.push_back({Medium::kImage, {length, length, length}});
    problem.step.refs.push_back({0, 0, s});
    problem.step.lengths.push_back(std::move(sample));
  }
  problem.dummies[kVisionPhase.number()] = {Medium::kImage, {4, 4, 1}};
  return problem;
}

absl::StatusOr<Plan> Planned(const RandomProblem& problem) {
  return MakePlan(problem.job, problem.step, problem.dummies);
}

TEST(PhaseCapacity, IsKeptInEveryExchangeOrRefused) {
  int kept = 0, refused = 0, cut = 0;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    const Below below = BelowFrom(seed);
    RandomProblem problem = DrawProblem(below);
    const absl::StatusOr<Plan> free = Planned(problem);
    if (!free.ok()) continue;
    for (PhaseSpec& spec : problem.job.phases) {
      if (spec.phase == Phase::kLlm || below(3) == 0) continue;
      spec.capacity = Fullest(spec, *free) * (1 + below(9)) / 8 + 1;
    }
    const absl::StatusOr<Plan> plan = Planned(problem);
    if (!plan.ok()) {
      ASSERT_TRUE(absl::IsResourceExhausted(plan.status())) << seed << ": " << plan.status();
      ++refused;
      continue;
    }
    ASSERT_TRUE(PlanCheck(problem.job, problem.step, *plan).ok()) << seed;
    for (const PhaseSpec& spec : problem.job.phases) {
      if (spec.capacity == 0) continue;
      ASSERT_LE(Fullest(spec, *plan), spec.capacity) << seed;
    }
    ++kept;
    cut += plan->num_microbatches > free->num_microbatches ? 1 : 0;
  }
  EXPECT_GT(kept, 300);
  EXPECT_GT(refused, 100);
  EXPECT_GT(cut, 30);
}

TEST(PhaseCapacity, ChangesNoPlanThatKeepsIt) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomProblem problem = DrawProblem(BelowFrom(seed));
    const absl::StatusOr<Plan> free = Planned(problem);
    if (!free.ok()) continue;
    for (PhaseSpec& spec : problem.job.phases) {
      if (spec.phase != Phase::kLlm) spec.capacity = std::max<uint64_t>(1, Fullest(spec, *free));
    }
    const absl::StatusOr<Plan> plan = Planned(problem);
    ASSERT_TRUE(plan.ok()) << seed << ": " << plan.status();
    for (size_t p = 0; p < plan->phases.size(); ++p) {
      ASSERT_EQ(plan->phases[p].order, free->phases[p].order) << seed;
      ASSERT_EQ(plan->phases[p].begin, free->phases[p].begin) << seed;
    }
  }
}

TEST(PhaseCapacity, TakesMoreMicrobatchesWhereTheyHelp) {
  RandomProblem problem = Pictures(2, 16, {100});
  PhaseSpec& vision = problem.job.phases[1];
  vision.runs = Runs::kOncePerMicrobatch;
  for (const auto& [capacity, microbatches] :
       {std::pair(0, 1u), {800, 1u}, {799, 2u}, {400, 2u}, {100, 8u}}) {
    vision.capacity = capacity;
    const absl::StatusOr<Plan> plan = Planned(problem);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->num_microbatches, microbatches) << capacity;
  }
  vision.capacity = 99;
  EXPECT_EQ(Planned(problem).status().message(),
            "phase vision: a rank would hold 1 more than the capacity of 99; one of sample 0 of the step "
            "alone has 100; "
            "take fewer samples a step, more ranks, or a larger capacity");
}

TEST(PhaseCapacity, IsNoReasonToMoveWhatStays) {
  RandomProblem problem = Pictures(2, 12, {10, 30});
  PhaseSpec& vision = problem.job.phases[1];
  vision.runs = Runs::kOncePerMicrobatch;
  vision.algorithm = "none";
  vision.capacity = 80;
  const absl::StatusOr<Plan> plan = Planned(problem);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->num_microbatches, 3);
  for (const PlannedItem& item : plan->items) {
    EXPECT_EQ(item.place.rank, plan->samples[item.sample].place.rank);
  }
}

TEST(PhaseCapacity, CountsThePaddingOfPaddedBatches) {
  RandomProblem problem = Pictures(1, 1, {10, 1});
  PhaseSpec& vision = problem.job.phases[1];
  vision.batching = Batching::kPadded;
  vision.capacity = 20;
  EXPECT_TRUE(Planned(problem).ok());
  vision.capacity = 19;
  EXPECT_TRUE(absl::IsResourceExhausted(Planned(problem).status()));
}

TEST(PhaseCapacity, OfAStepThatIsEncodedAtOnceNeedsAPlacement) {
  RandomProblem problem = Pictures(2, 3, {100});
  PhaseSpec& vision = problem.job.phases[1];
  vision.capacity = 200;
  EXPECT_TRUE(Planned(problem).ok());
  vision.capacity = 140;
  const std::string message(Planned(problem).status().message());
  EXPECT_NE(message.find("no placement holds less than 150"), std::string::npos) << message;
  vision.capacity = 150;  // 300 tokens, but in pictures of 100
  const std::string of_pictures(Planned(problem).status().message());
  EXPECT_NE(of_pictures.find("no placement was found that keeps it"), std::string::npos) << of_pictures;
}

}  // namespace
}  // namespace evenkeel::reorder
