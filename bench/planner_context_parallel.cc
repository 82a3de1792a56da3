// The table of context parallelism of bench_planner: four planners on several distributions of lengths.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iostream>

#include "bench/planner_pack.h"
#include "core/context_groups.h"
#include "reorder/context_parallel/context_parallel.h"
#include "reorder/context_parallel/waves.h"
#include "tests/reorder/omni_trace.h"

namespace {

using namespace evenkeel;  // NOLINT: a program

constexpr int kSeeds = 5;
constexpr uint32_t kRanks = 64;
constexpr size_t kSequences = 512;

struct Shape {
  const char* name;
  uint32_t (*draw)(reorder::Random&);
};

constexpr Shape kShapes[] = {
    {"long tail", [](reorder::Random& random) { return random.Length(8.5, 1.2, 64, 200000); }},
    {"few long",
     [](reorder::Random& random) {
       return random.Below(20) == 0 ? 20000 + static_cast<uint32_t>(random.Below(60000))
                                    : random.Length(7, 0.7, 64, 20000);
     }},
    {"alike", [](reorder::Random& random) { return random.Length(9, 0.5, 64, 200000); }}};

reorder::ContextParallelInput Draw(const Shape& shape, uint64_t seed, double fill, double ring,
                                   uint32_t ranks = kRanks) {
  reorder::Random random(seed);
  reorder::ContextParallelInput input{.ranks = ranks, .memory_per_token = 1};
  double total = 0, longest = 0;
  for (size_t s = 0; s < kSequences; ++s) {
    input.sequences.push_back({.tokens = shape.draw(random)});
    total += input.sequences.back().tokens;
    longest = std::max<double>(longest, input.sequences.back().tokens);
  }
  input.memory_per_rank = std::max(longest * 1.05, total / fill) / ranks;
  input.cost = {.attention = 1.0 / 4096, .linear = 1, .constant = 15, .ring = ring, .ring_constant = 30};
  return input;
}

struct Planned {
  reorder::ContextParallelPlan plan;
  double ms = 0;
};

Planned PlanWith(reorder::ContextParallelInput input, const char* algorithm, bool powers_of_two) {
  input.algorithm = algorithm;
  input.powers_of_two = powers_of_two;
  const std::clock_t start = std::clock();
  auto plan = reorder::PlanContextParallel(input);
  const double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  if (!plan.ok() || !reorder::ContextParallelCheck(input, *plan).ok()) {
    std::cerr << "context_parallel: " << plan.status() << "\n";
    std::exit(1);
  }
  return {*std::move(plan), ms};
}

constexpr uint32_t kPooledRanks = 256;

void PrintPoolRow(const Shape& shape, double fill, double ring, bool powers) {
  double waves = 0, time = 0, of_static = 0, of_any = 0, ms = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    reorder::ContextParallelInput input = Draw(shape, seed, fill, ring, kPooledRanks);
    of_static += PlanWith(input, "static", false).plan.time;
    of_any += PlanWith(input, "regroup", false).plan.time;
    input.degrees = PoolSizes(kPooledRanks, {.powers_of_two = powers, .max_size = kPooledRanks, .pool = 64});
    const std::clock_t start = std::clock();
    const auto planned = reorder::PlanWaves(input);
    ms = std::max(ms, 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    if (!planned.ok()) {
      std::cerr << "waves: " << planned.status() << "\n";
      std::exit(1);
    }
    waves += static_cast<double>(planned->size()) / kSeeds;
    time += reorder::TimeOfWaves(input, *planned);
  }
  std::printf("| %s | %.1f | %.2f | %s | %.1f | %.3f | %.3f | %.1f |\n", shape.name, fill, ring,
              powers ? "powers of two" : "any", waves, of_static / time, of_any / time, ms);
}

// What a stream plans: waves of aligned groups from a pool of 64.
void PrintPoolTable() {
  std::printf(
      "\n| lengths | batch / memory | ring | sizes | waves | static | regroup, any groups | ms "
      "|\n|---|---|---|---|---|---|---|---|\n"
      "| limit | | | | | | | <= 10 |\n");
  for (const Shape& shape : kShapes) {
    for (double fill : {8.0, 1.6}) {
      for (double ring : {0.02, 0.3}) {
        for (bool powers : {true, false}) PrintPoolRow(shape, fill, ring, powers);
      }
    }
  }
}

}  // namespace

void PrintContextParallelTable() {
  std::printf(
      "| lengths | batch / memory | ring | over bound | microbatches | dhp | dhp, powers of two | static | "
      "regroup, powers of two | least gain | ms |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
      "| limit | | | | | >= 1 | >= 1 | >= 1 | >= 1 | >= 1 | <= 5 |\n");
  for (const Shape& shape : kShapes) {
    for (double fill : {8.0, 1.6, 0.7}) {
      for (double ring : {0.02, 0.3}) {
        double over = 0, count = 0, slower[4] = {}, least = 1e300, ms = 0;
        for (uint64_t seed = 0; seed < kSeeds; ++seed) {
          const reorder::ContextParallelInput input = Draw(shape, seed, fill, ring);
          const Planned ours = PlanWith(input, "regroup", false);
          over += ours.plan.time / ours.plan.bound / kSeeds;
          count += static_cast<double>(ours.plan.microbatches.size()) / kSeeds;
          ms = std::max(ms, ours.ms);
          const Planned others[] = {PlanWith(input, "dhp", false), PlanWith(input, "dhp", true),
                                    PlanWith(input, "static", false), PlanWith(input, "regroup", true)};
          for (int i = 0; i < 4; ++i) {
            slower[i] += others[i].plan.time / ours.plan.time / kSeeds;
            least = std::min(least, others[i].plan.time / ours.plan.time);
          }
        }
        std::printf("| %s | %.1f | %.2f | %.3f | %.1f | %.3f | %.3f | %.3f | %.3f | %.4f | %.1f |\n",
                    shape.name, fill, ring, over, count, slower[0], slower[1], slower[2], slower[3], least,
                    ms);
      }
    }
  }
  PrintPoolTable();
}
