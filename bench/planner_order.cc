#include "bench/planner_order.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string>

#include "reorder/microbatch_order.h"
#include "tests/reorder/pipeline_problems.h"

namespace {

using namespace evenkeel;  // NOLINT: a program

struct Shape {
  PipelineSchedule schedule;
  uint32_t stages, virtual_stages, microbatches;
};

struct Sums {
  double random = 0, disttrain = 0, ours = 0, worst = 1, bound = 0, ms = 0;
  double gap = 0, disttrain_gap = 0, ours_gap = 0;
  int draws = 0, not_worse = 0;
};

double TimeOf(const PipelineProblem& pipeline, const char* algorithm, uint64_t seed,
              uint32_t iterations = kOrderIterations) {
  return SolveOrder({.pipeline = pipeline, .algorithm = algorithm, .seed = seed, .iterations = iterations})
      ->timeline.iteration_time;
}

void Draw(const PipelineProblem& pipeline, uint64_t seed, Sums& sums) {
  const double random = TimeOf(pipeline, "random", seed), disttrain = TimeOf(pipeline, "disttrain", 0);
  const double given = TimeOf(pipeline, "given", 0);
  const std::clock_t start = std::clock();
  const double ours = TimeOf(pipeline, "local_search", 0);
  sums.ms += 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const double best = std::min(ours, TimeOf(pipeline, "local_search", seed + 1, 8 * kOrderIterations));
  sums.random += random / best, sums.disttrain += disttrain / best, sums.ours += ours / best;
  sums.worst = std::max(sums.worst, ours / best);
  sums.bound += PipelineBound(pipeline) / best;
  sums.gap += random / best - 1;
  sums.disttrain_gap += (random - disttrain) / best;
  sums.ours_gap += (random - ours) / best;
  sums.not_worse += ours <= disttrain && ours <= given;
  ++sums.draws;
}

}  // namespace

void PrintOrders(const std::vector<std::vector<SampleLengths>>& traces, int draws) {
  constexpr auto kPlain = PipelineSchedule::k1F1B, kInterleaved = PipelineSchedule::kInterleaved1F1B;
  const Shape shapes[] = {{kPlain, 4, 1, 8},
                          {kPlain, 4, 1, 16},
                          {kPlain, 8, 1, 32},
                          {kInterleaved, 4, 2, 8},
                          {kInterleaved, 4, 2, 16}};
  std::printf(
      "| schedule | stages | microbatches | random | disttrain | local_search (worst) | bound | gap closed "
      "by "
      "disttrain | by local_search (limit: 50 %%, and more than disttrain) | no worse than given and "
      "disttrain | "
      "ms |\n|---|---|---|---|---|---|---|---|---|---|---|\n");
  Random random(2024);
  for (const Shape& shape : shapes) {
    Sums sums;
    for (int i = 0; i < draws; ++i) {
      const PipelineProblem empty{
          .schedule = shape.schedule, .stages = shape.stages, .virtual_stages = shape.virtual_stages};
      Draw(DrawFromTrace(traces[i % traces.size()], empty, shape.microbatches,
                         1 + static_cast<uint32_t>(random.Below(6)), static_cast<EncoderAt>(i / 2 % 2),
                         random),
           i, sums);
    }
    std::printf(
        "| %s | %u x %u | %u | %.3f | %.3f | %.4f (%.4f) | %.3f | %.1f %% | %.1f %% | %d of %d | %.1f |\n",
        std::string(PipelineScheduleName(shape.schedule)).c_str(), shape.stages, shape.virtual_stages,
        shape.microbatches, sums.random / draws, sums.disttrain / draws, sums.ours / draws, sums.worst,
        sums.bound / draws, 100 * sums.disttrain_gap / sums.gap, 100 * sums.ours_gap / sums.gap,
        sums.not_worse, sums.draws, sums.ms / draws);
    std::fflush(stdout);
  }
}
