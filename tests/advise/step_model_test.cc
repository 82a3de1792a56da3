// The directions of the papers' claims, each on its own kind of data, and the model's own sums.
#include "advise/step_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "advise/policies.h"
#include "tests/reorder/omni_trace.h"
#include "tests/source_dir.h"
#include "tests/usual_phases.h"

namespace evenkeel::advise {
namespace {

struct Scene {
  const char* model = "mllm-10b";
  uint32_t ranks = 16;
  uint32_t per_rank = 40;
  uint32_t stages = 1;
  uint32_t virtual_stages = 1;
  uint64_t microbatch_tokens = 0;
  bool audio_padded = true;
  bool has_audio = true;
};

Job MakeJob(const Scene& scene) {
  Job job;
  job.ranks_per_node = 8;
  job.pipeline_stages = scene.stages;
  job.virtual_stages = scene.virtual_stages;
  job.microbatch.capacity_tokens = scene.microbatch_tokens;
  job.microbatch.count_multiple = scene.virtual_stages > 1 ? scene.stages : 1;
  for (Phase phase : kUsualPhases) {
    if (phase == kAudioPhase && !scene.has_audio) continue;
    PhaseSpec& spec = job.phases.emplace_back();
    spec.phase = phase;
    for (uint32_t r = 0; r < scene.ranks; ++r) spec.ranks.push_back(r);
    if (phase == kAudioPhase && scene.audio_padded) spec.batching = Batching::kPadded;
    if (scene.stages > 1) spec.runs = Runs::kOncePerMicrobatch;
  }
  return *WithCostsOf(*FindTrainingModel(scene.model), job);
}

StepSamples StepOf(const std::vector<SampleLengths>& trace, size_t first, size_t count) {
  StepSamples step;
  for (size_t i = 0; i < count; ++i) {
    step.refs.push_back({0, 0, i});
    step.lengths.push_back(trace[(first + i) % trace.size()]);
  }
  return step;
}

// Mean iteration time of every policy over several steps.
std::map<std::string, double> Compare(const Scene& scene, std::vector<SampleLengths> trace) {
  std::erase_if(trace, [&](const SampleLengths& sample) {
    return scene.microbatch_tokens > 0 && sample.llm_length > scene.microbatch_tokens;
  });
  const Job job = MakeJob(scene);
  std::map<std::string, double> seconds;
  const size_t samples = size_t{scene.ranks} * scene.per_rank;
  for (uint64_t step = 0; step < 4; ++step) {
    StepSamples drawn = StepOf(trace, step * samples, samples);
    drawn.step = step;
    for (const Policy& policy : Policies()) {
      const auto plan = PlanByPolicy(policy, job, drawn, {});
      EXPECT_TRUE(plan.ok()) << plan.status();
      const auto figures = ModelStep(job, *plan, *FindTrainingModel(scene.model), Machine());
      EXPECT_TRUE(figures.ok()) << figures.status();
      EXPECT_GT(figures->mfu, 0);
      EXPECT_LT(figures->mfu, 0.7501) << "recomputation takes a quarter";
      EXPECT_GE(figures->bubble_share, 0);
      EXPECT_LT(figures->bubble_share, 1);
      seconds[std::string(policy.name)] += figures->iteration_seconds / 4;
    }
  }
  return seconds;
}

TEST(Policies, OnlyTheJobsOwnKeepsBins) {
  Job job = MakeJob({});
  job.batch.pack = {.bins = 2 * static_cast<uint32_t>(job.phases[0].ranks.size()),
                    .capacities = {{"llm", 100000}}};
  StepSamples drawn = StepOf(reorder::DrawOmniTrace(3, 3000), 0, 8 * job.batch.pack.bins);
  for (uint32_t b = 0; b <= job.batch.pack.bins; ++b) drawn.bin_begin.push_back(8 * b);
  const auto by_job = PlanByPolicy(*FindPolicy("job"), job, drawn, {});
  ASSERT_TRUE(by_job.ok()) << by_job.status();
  EXPECT_EQ(by_job->num_microbatches, 2u);
  const auto free = PlanByPolicy(*FindPolicy("post_balancing"), job, drawn, {});
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_FALSE(reorder::PlanCheck(job, drawn, *free).ok()) << "bins are split";
}

TEST(Policies, MegatronFillsMicrobatchesInOrderForRanksInTurn) {
  Job job = MakeJob({.ranks = 2, .microbatch_tokens = 10});
  StepSamples drawn;
  for (uint32_t tokens : {4, 4, 4, 10, 1}) {
    drawn.refs.push_back({0, 0, drawn.refs.size()});
    drawn.lengths.push_back({.llm_length = tokens});
  }
  const auto plan = PlanByPolicy(*FindPolicy("megatron"), job, drawn, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->num_microbatches, 2u);
  const PhasePlan& llm = *plan->phase(Phase::kLlm);
  std::vector<std::vector<uint32_t>> batches;
  for (size_t i = 0; i + 1 < llm.begin.size(); ++i) {
    batches.emplace_back(llm.order.begin() + llm.begin[i], llm.order.begin() + llm.begin[i + 1]);
  }
  // Rank 0 has the first and the third microbatch, rank 1 the second and the fourth.
  EXPECT_EQ(batches, (std::vector<std::vector<uint32_t>>{{0, 1}, {3}, {2}, {4}}));
}

TEST(StepModel, PostBalancingEveryPhaseBeatsTheLlmAloneBeatsNothing) {
  for (uint64_t seed : {1, 2, 3}) {
    auto seconds = Compare({}, reorder::DrawOmniTrace(seed, 3000));
    EXPECT_LT(seconds["llm_only"], seconds["none"]);
    EXPECT_LT(seconds["post_balancing"], 0.9 * seconds["llm_only"]);
    EXPECT_LT(seconds["balance_without_moving"], 1.01 * seconds["post_balancing"]);
  }
}

TEST(StepModel, AlgorithmsThatFitTheBatchingBeatEitherAlone) {
  for (uint64_t seed : {4, 5, 6}) {
    auto seconds = Compare({}, reorder::DrawOmniTrace(seed, 3000));
    EXPECT_LT(seconds["post_balancing"], seconds["all_packed"]);
    EXPECT_LT(seconds["post_balancing"], seconds["all_padded"]);
  }
}

TEST(StepModel, ReorderingWithinAndAcrossMicrobatchesBeatsRandom) {
  for (const uint32_t virtual_stages : {1, 2}) {
    const Scene scene{.ranks = 4,
                      .per_rank = 256,
                      .stages = 4,
                      .virtual_stages = virtual_stages,
                      .microbatch_tokens = 16384,
                      .audio_padded = false};
    double ours = 0, disttrain = 0;
    for (uint64_t seed : {7, 8, 9}) {
      auto seconds = Compare(scene, reorder::DrawOmniTrace(seed, 6000));
      EXPECT_LT(seconds["disttrain"], seconds["random"]) << virtual_stages << " virtual stages, " << seed;
      EXPECT_LT(seconds["balance_without_moving"], 1.01 * seconds["disttrain"])
          << virtual_stages << " virtual stages, " << seed;
      ours += seconds["balance_without_moving"], disttrain += seconds["disttrain"];
    }
    EXPECT_LT(ours, disttrain) << virtual_stages << " virtual stages";
  }
}

std::vector<SampleLengths> ReadVisionTrace(const std::filesystem::path& path) {
  std::vector<SampleLengths> trace;
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    uint32_t vision = 0, llm = 0;
    if (std::sscanf(line.c_str(), "%u,%u", &vision, &llm) != 2) continue;
    trace.push_back({.llm_length = llm,
                     .loss_tokens = llm / 2,
                     .items = {{Medium::kImage, {vision, vision, vision / 4}}}});
  }
  return trace;
}

TEST(StepModel, TheDirectionsHoldOnRealLengths) {
  const char* const shared = std::getenv("EVENKEEL_SHARED");
  const std::filesystem::path folder =
      (shared != nullptr ? std::filesystem::path(shared)
                         : std::filesystem::path(SourceDir()) / ".." / "shared") /
      "traces";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is missing";
  size_t traces = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().filename().string().rfind("internvl-", 0) != 0) continue;
    const std::vector<SampleLengths> trace = ReadVisionTrace(file.path());
    Scene scene{.model = "internvl-6+20b", .has_audio = false};
    auto seconds = Compare(scene, trace);
    EXPECT_LT(seconds["post_balancing"], seconds["none"]) << file.path();
    EXPECT_LE(seconds["post_balancing"], seconds["llm_only"] * 1.001) << file.path();
    scene = {.model = "internvl-6+20b",
             .ranks = 4,
             .per_rank = 64,
             .stages = 4,
             .microbatch_tokens = 4096,
             .has_audio = false};
    seconds = Compare(scene, trace);
    EXPECT_LT(seconds["disttrain"], seconds["random"]) << file.path();
    EXPECT_LE(seconds["balance_without_moving"], seconds["disttrain"]) << file.path();
    ++traces;
  }
  EXPECT_GT(traces, 0);
}

TEST(StepModel, AnEvenStepKeepsNobodyWaiting) {
  const Scene scene{.ranks = 4, .per_rank = 2, .has_audio = false};
  Job job = MakeJob(scene);
  std::vector<SampleLengths> alike(
      8, {.llm_length = 1000, .loss_tokens = 500, .items = {{Medium::kImage, {800, 800, 200}}}});
  const Plan plan = *PlanByPolicy(*FindPolicy("none"), job, StepOf(alike, 0, 8), {});
  const TrainingModel& model = *FindTrainingModel(scene.model);
  const StepFigures figures = *ModelStep(job, plan, model, {.recompute = false});
  EXPECT_NEAR(figures.mfu, 1, 1e-9);
  EXPECT_NEAR(figures.bubble_share, 0, 1e-9);
  EXPECT_EQ(figures.exchange_seconds, 0);
  EXPECT_EQ(figures.inter_node_bytes, 0);
  EXPECT_EQ(figures.pad_ratio, 0);
  const double flops =
      2 * (2 * 7e9 * 1000 + 2.0 * 28 * 3584 * 1e6 + 2 * 2e9 * 800 + 4.0 * 36 * 2048 * 640000);
  EXPECT_NEAR(figures.iteration_seconds, 3 * flops / 989e12, 1e-9);
}

// DistTrain's third unit: it works after the llm, on the llm's ranks or as the last stage of a pipeline.
TEST(StepModel, AGeneratorCountsWhereverItRuns) {
  Job job = MakeJob({.model = "mllm-9b", .ranks = 2, .per_rank = 4, .has_audio = false});
  Phase draw("draw", 2, {Medium::kImage});
  draw.BecomeGenerator();
  const TrainingModel& model = *FindTrainingModel("mllm-9b");
  EXPECT_EQ(model.phase(draw)->parameters, 0.87e9);
  EXPECT_EQ(model.phase(kVisionPhase)->parameters, 0.63e9);
  std::vector<SampleLengths> alike(8, {.llm_length = 1000, .items = {{Medium::kImage, {800, 800, 200}}}});
  const auto figures = [&](const Job& with) {
    const auto plan = PlanByPolicy(*FindPolicy("disttrain"), with, StepOf(alike, 0, 8), {});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *ModelStep(*WithCostsOf(model, with), *plan, model, {.recompute = false});
  };
  const double before = figures(job).iteration_seconds;
  job.phases.push_back({.phase = draw, .ranks = {0, 1}});
  for (SampleLengths& sample : alike)
    sample.items.push_back({Medium::kImage, {1000, 1000, 250}, kTargetTower});
  const double flops = 2 * 0.87e9 * 1000 + 4.0 * 16 * 1280 * 1e6;
  EXPECT_NEAR(figures(job).iteration_seconds, before + 3 * 4 * flops / 989e12, 1e-9);
  // Apart: three stages; the generator's ranks are GPUs of their own.
  job.pipeline_stages = 1;
  job.pipeline.given = true;
  job.microbatch.capacity_tokens = 1000;
  for (PhaseSpec& spec : job.phases) spec.runs = Runs::kOncePerMicrobatch;
  job.phases[1].ranks = {10, 11};
  job.phases[2].ranks = {20, 21};
  const StepFigures apart = figures(job);
  EXPECT_EQ(apart.gpus, 6);
  EXPECT_EQ(apart.phases.back().seconds.size(), 2u);
  EXPECT_GT(apart.exchange_seconds, 0);
  EXPECT_LT(apart.iteration_seconds, before + 3 * 4 * flops / 989e12);
}

TEST(StepModel, DistTrainPlacesSamplesByTheirTargetsToo) {
  Job job = MakeJob({.model = "mllm-9b", .ranks = 2, .per_rank = 2, .has_audio = false});
  Phase draw("draw", 2, {Medium::kImage});
  draw.BecomeGenerator();
  job.phases.push_back({.phase = draw, .ranks = {0, 1}});
  std::vector<SampleLengths> samples(4, {.llm_length = 1000});
  for (size_t s : {0, 2}) samples[s].items = {{Medium::kImage, {4000, 4000, 1000}, kTargetTower}};
  const auto plan = PlanByPolicy(*FindPolicy("disttrain"), job, StepOf(samples, 0, 4), {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_NE(plan->samples[0].place.rank, plan->samples[2].place.rank);
  EXPECT_EQ(plan->phase(draw)->load_after[0], plan->phase(draw)->load_after[1]);
}

TEST(StepModel, RefusesAModelWithoutThePhase) {
  const Job job = MakeJob({});
  const Plan plan =
      *PlanByPolicy(*FindPolicy("none"), job, StepOf(reorder::DrawOmniTrace(1, 100), 0, 100), {});
  EXPECT_EQ(ModelStep(job, plan, *FindTrainingModel("mllm-9b"), Machine()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ModelStep(job, plan, *FindTrainingModel("mllm-10b"), {.peak_flops = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FindTrainingModel("gpt"), nullptr);
  EXPECT_EQ(FindPolicy("best"), nullptr);
}

// DistTrain's kind of data (2.3): every sequence is filled up to 8,192 tokens, and what its images need is skewed.
std::vector<SampleLengths> DrawFixedSequences(uint64_t seed, size_t samples) {
  reorder::Random random(seed);
  std::vector<SampleLengths> trace;
  while (trace.size() < samples) {
    SampleLengths& sample = trace.emplace_back();
    sample.llm_length = 8192;
    uint32_t left = random.Length(8.6, 1.1, 256, 28672);  // patches; four make a token
    while (left >= 256) {
      const uint32_t patches = std::min(left, random.Length(7.5, 0.7, 256, 8192));
      sample.items.push_back({Medium::kImage, {patches, patches, patches / 4}});
      left -= patches;
    }
  }
  return trace;
}

Job FixedSequencesJob(uint32_t encoder_ranks) {
  const Scene scene{.model = "mllm-10b",
                    .ranks = 8,
                    .stages = 4,
                    .microbatch_tokens = 8192,
                    .audio_padded = false,
                    .has_audio = false};
  Job job = MakeJob(scene);
  if (encoder_ranks == 0) return job;
  PhaseSpec& vision = job.phases[1];
  vision.ranks.clear();
  job.pipeline.given = true;
  for (uint32_t r = 0; r < encoder_ranks; ++r) vision.ranks.push_back(64 + r);
  return job;
}

StepFigures FiguresOf(const Job& job, const std::string& policy, const StepSamples& samples) {
  const auto plan = PlanByPolicy(*FindPolicy(policy), job, samples, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  const auto figures = ModelStep(job, *plan, *FindTrainingModel("mllm-10b"), Machine());
  EXPECT_TRUE(figures.ok()) << figures.status();
  return *figures;
}

TEST(StepModel, OnDistTrainsDataItGainsAndOursIsNeverSlower) {
  for (const uint32_t encoder_ranks : {0, 32}) {
    double random = 0, disttrain = 0;
    for (uint64_t seed : {1, 2, 3, 4}) {
      const StepSamples samples = StepOf(DrawFixedSequences(seed, 128), 0, 128);
      const Job job = FixedSequencesJob(encoder_ranks);
      const double of_disttrain = FiguresOf(job, "disttrain", samples).iteration_seconds;
      EXPECT_LE(FiguresOf(job, "balance_without_moving", samples).iteration_seconds, of_disttrain) << seed;
      disttrain += of_disttrain;
      random += FiguresOf(job, "random", samples).iteration_seconds;
    }
    EXPECT_GT(random / disttrain, 1.01) << encoder_ranks << " ranks of encoders";
    EXPECT_LT(random / disttrain, 1.5) << encoder_ranks << " ranks of encoders";
  }
}

TEST(StepModel, EncodersOnOtherGpusCountAsThatManyAndMakeNoStepSlower) {
  for (const Policy& policy : Policies()) {
    const std::string name(policy.name);
    const StepSamples samples = StepOf(DrawFixedSequences(5, 128), 0, 128);
    const StepFigures on_llm = FiguresOf(FixedSequencesJob(0), name, samples);
    EXPECT_EQ(on_llm.gpus, 32) << name;
    double before = INFINITY;
    for (const uint32_t encoders : {8, 12, 32}) {
      const StepFigures apart = FiguresOf(FixedSequencesJob(encoders), name, samples);
      EXPECT_EQ(apart.gpus, 32 + encoders) << name;
      EXPECT_LE(apart.iteration_seconds, 1.001 * before) << name << ", " << encoders;
      before = apart.iteration_seconds;
    }
    EXPECT_LE(before, on_llm.iteration_seconds) << name;
  }
}

TEST(StepModel, AFrozenEncoderHasNoBackward) {
  Job job = FixedSequencesJob(32);
  const StepSamples samples = StepOf(DrawFixedSequences(6, 128), 0, 128);
  const StepFigures trained = FiguresOf(job, "none", samples);
  job.pipeline = {.given = true, .passes = {{.phase = "vision", .frozen = true}}};
  const StepFigures frozen = FiguresOf(job, "none", samples);
  EXPECT_NEAR(frozen.phases[1].seconds[0] * 4, trained.phases[1].seconds[0], 1e-9);
  EXPECT_LT(frozen.iteration_seconds, trained.iteration_seconds);
}

}  // namespace
}  // namespace evenkeel::advise
