// Measures orders of microbatches: against random orders, DistTrain's, and the best order that a long search
// finds.
#include "bench/planner_order.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "reorder/pipeline/microbatch_order.h"
#include "reorder/planner.h"
#include "tests/reorder/pipeline/pipeline_problems.h"
#include "tests/usual_phases.h"

namespace {

using namespace evenkeel;  // NOLINT: a program

struct Shape {
  reorder::PipelineSchedule schedule;
  uint32_t stages, virtual_stages, microbatches;
};

struct Sums {
  double random = 0, disttrain = 0, ours = 0, worst = 1, bound = 0, ms = 0;
  double gap = 0, disttrain_gap = 0, ours_gap = 0;
  int draws = 0, not_worse = 0;

  void Add(const Sums& other) {
    random += other.random, disttrain += other.disttrain, ours += other.ours, bound += other.bound;
    worst = std::max(worst, other.worst), ms += other.ms;
    gap += other.gap, disttrain_gap += other.disttrain_gap, ours_gap += other.ours_gap;
    draws += other.draws, not_worse += other.not_worse;
  }
};

double TimeOf(const reorder::PipelineProblem& pipeline, const char* algorithm, uint64_t seed,
              uint32_t iterations = reorder::kOrderIterations) {
  return reorder::SolveOrder(
             {.pipeline = pipeline, .algorithm = algorithm, .seed = seed, .iterations = iterations})
      ->timeline.iteration_time;
}

void Draw(const reorder::PipelineProblem& pipeline, uint64_t seed, Sums& sums) {
  const double random = TimeOf(pipeline, "random", seed), disttrain = TimeOf(pipeline, "disttrain", 0);
  const double given = TimeOf(pipeline, "given", 0);
  const std::clock_t start = std::clock();
  const double ours = TimeOf(pipeline, "local_search", 0);
  sums.ms += 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const double best =
      std::min(ours, TimeOf(pipeline, "local_search", seed + 1, 8 * reorder::kOrderIterations));
  sums.random += random / best, sums.disttrain += disttrain / best, sums.ours += ours / best;
  sums.worst = std::max(sums.worst, ours / best);
  sums.bound += reorder::PipelineBound(pipeline) / best;
  sums.gap += random / best - 1;
  sums.disttrain_gap += (random - disttrain) / best;
  sums.ours_gap += (random - ours) / best;
  sums.not_worse += ours <= disttrain && ours <= given;
  ++sums.draws;
}

void PrintRow(const std::string& shape, const Sums& sums) {
  const int draws = std::max(1, sums.draws);
  std::printf("| %s | %d | %.3f | %.3f | %.4f (%.4f) | %.3f | %.1f %% | %.1f %% | %d | %.1f |\n",
              shape.c_str(), sums.draws, sums.random / draws, sums.disttrain / draws, sums.ours / draws,
              sums.worst, sums.bound / draws, 100 * sums.disttrain_gap / sums.gap,
              100 * sums.ours_gap / sums.gap, sums.not_worse, sums.ms / draws);
  std::fflush(stdout);
}

constexpr auto kPlain = reorder::PipelineSchedule::k1F1B,
               kInterleaved = reorder::PipelineSchedule::kInterleaved1F1B;
constexpr Shape kShapes[] = {{kPlain, 4, 1, 8},
                             {kPlain, 4, 1, 16},
                             {kPlain, 8, 1, 32},
                             {kInterleaved, 4, 2, 8},
                             {kInterleaved, 4, 2, 16}};

// The least processor time of a few plans of the job.
double PlanMs(const Job& job, const StepSamples& step, const char* order, uint32_t* microbatches) {
  reorder::PlanOptions options;
  options.microbatch_order = order;
  double best = 1e300;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t start = std::clock();
    const auto plan = reorder::MakePlan(job, step, {}, options);
    best = std::min(best, 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
    if (!plan.ok()) std::cerr << plan.status() << "\n", std::exit(1);
    *microbatches = plan->num_microbatches;
  }
  return best;
}

// Up to 8 microbatches on 4 stages, where every order can be tried.
void MeasureSmall(const std::vector<std::vector<SampleLengths>>& traces, int draws, reorder::Random& random,
                  OrderFigures& figures) {
  constexpr uint32_t kAllOrders = 40320;
  for (int i = 0; i < draws; ++i) {
    const uint32_t microbatches = 4 + static_cast<uint32_t>(i % 5);
    const reorder::PipelineProblem pipeline = reorder::DrawFromTrace(
        traces[i % traces.size()], {.stages = 4}, microbatches, 1 + static_cast<uint32_t>(random.Below(6)),
        static_cast<reorder::EncoderAt>(i / 2 % 2), random);
    std::vector<uint32_t> order = reorder::InOrder(microbatches);
    reorder::PipelineClock clock(pipeline);
    double best = clock.Try(order, 0);
    while (std::next_permutation(order.begin(), order.end())) best = std::min(best, clock.Try(order, 0));
    figures.over_optimum += TimeOf(pipeline, "local_search", 0) / best / draws;
    figures.few_over_optimum += TimeOf(pipeline, "local_search", 0, kAllOrders / 8) / best / draws;
  }
}

}  // namespace

OrderFigures MeasureOrders(const std::vector<std::vector<SampleLengths>>& traces, int draws, bool print) {
  if (print) {
    std::printf(
        "| schedule, stages, microbatches | draws | random | disttrain | local_search (worst) | bound | gap "
        "closed by disttrain | by local_search | no worse than given and disttrain | ms |\n"
        "|---|---|---|---|---|---|---|---|---|---|\n"
        "| limit | >= 1000 | | | | | | >= 50 %%, and disttrain's | all | |\n");
  }
  reorder::Random random(2024);
  Sums all;
  const int shapes = static_cast<int>(std::size(kShapes));
  for (int s = 0; s < shapes; ++s) {
    const Shape& shape = kShapes[s];
    Sums sums;
    for (int i = s; i < draws; i += shapes) {
      const reorder::PipelineProblem empty{
          .schedule = shape.schedule, .stages = shape.stages, .virtual_stages = shape.virtual_stages};
      Draw(reorder::DrawFromTrace(traces[i / shapes % traces.size()], empty, shape.microbatches,
                                  1 + static_cast<uint32_t>(random.Below(6)),
                                  static_cast<reorder::EncoderAt>(i / shapes / 2 % 2), random),
           static_cast<uint64_t>(i), sums);
    }
    all.Add(sums);
    if (print) {
      PrintRow(absl::StrCat(std::string(reorder::PipelineScheduleName(shape.schedule)), ", ", shape.stages,
                            " x ", shape.virtual_stages, ", ", shape.microbatches),
               sums);
    }
  }
  OrderFigures figures{.draws = all.draws,
                       .not_worse = all.not_worse,
                       .closed = all.ours_gap / all.gap,
                       .disttrain_closed = all.disttrain_gap / all.gap};
  const int small = std::min(100, draws);
  MeasureSmall(traces, small, random, figures);
  if (print) {
    PrintRow("all", all);
    std::printf(
        "\nUp to 8 microbatches on 4 stages, %d draws: %.5f of the best of all orders; with an eighth of "
        "them "
        "tried at most, %.5f (limit 1.01).\n",
        small, figures.over_optimum, figures.few_over_optimum);
  }
  return figures;
}

void PrintPipelinePlans() {
  constexpr uint32_t kSamples = 153600;
  StepSamples step{.lengths = reorder::DrawOmniTrace(2024, kSamples)};
  for (SampleLengths& sample : step.lengths) sample.llm_length = std::min(sample.llm_length, 16384u);
  for (uint32_t i = 0; i < kSamples; ++i) step.refs.push_back({0, 0, i});
  std::printf(
      "| llm ranks | stages | encoders | microbatches | ms | of that ordering | with all in order |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const uint32_t ranks : {2560u, 640u, 320u}) {
    for (const uint32_t virtual_stages : {1u, 2u}) {
      for (const Runs runs : {Runs::kOncePerStep, Runs::kOncePerMicrobatch}) {
        Job job{.ranks_per_node = 8, .pipeline_stages = 4, .virtual_stages = virtual_stages};
        job.microbatch = {.capacity_tokens = 16384, .count_multiple = virtual_stages > 1 ? 4u : 1u};
        for (Phase phase : kUsualPhases) {
          PhaseSpec& spec = job.phases.emplace_back();
          spec.phase = phase;
          if (phase != Phase::kLlm) spec.runs = runs;
          for (uint32_t r = 0; r < ranks; ++r) spec.ranks.push_back(r);
        }
        uint32_t microbatches = 0;
        const double ordered = PlanMs(job, step, "local_search", &microbatches);
        const double given = PlanMs(job, step, "given", &microbatches);
        std::printf("| %u | 4 x %u | %s | %u | %.1f | %.1f | %.1f |\n", ranks, virtual_stages,
                    runs == Runs::kOncePerStep ? "once per step" : "once per microbatch", microbatches,
                    ordered, ordered - given, given);
        std::fflush(stdout);
      }
    }
  }
}
