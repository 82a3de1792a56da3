// Runs of steps of video like DHP's, by every policy of degrees: for tests and benchmarks. Lengths are made
// up after what the paper says of its data; bench/video_trace.py has the same sets as a trace.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "advise/step_model.h"
#include "advise/step_model_degrees.h"
#include "core/status.h"
#include "tests/reorder/omni_trace.h"

namespace evenkeel::advise {

struct VideoSet {
  const char* name;
  double mean, deviation;        // of the logarithm of the seconds
  double least, most;            // seconds
  double pairs;                  // of frames, a second
  std::vector<uint32_t> tokens;  // of a pair, by the size of the picture
};

// Most clips are short, few are many times as long; and alike ones.
inline const std::vector<VideoSet>& VideoSets() {
  static const std::vector<VideoSet> sets = {{"openvid", 1.6, 0.95, 1, 300, 1, {256, 220, 390, 920}},
                                             {"internvid", 2.0, 0.8, 1, 120, 1, {220, 390, 920}},
                                             {"msrvtt", 2.7, 0.35, 10, 32, 4, {300}}};
  return sets;
}

inline std::vector<SampleLengths> DrawVideos(const VideoSet& set, uint64_t seed, size_t count) {
  reorder::Random random(seed);
  std::vector<SampleLengths> videos;
  for (size_t s = 0; s < count; ++s) {
    const double seconds =
        std::clamp(plain::Exp(set.mean + set.deviation * random.Normal()), set.least, set.most);
    const uint32_t pairs = std::max(1u, static_cast<uint32_t>(set.pairs * seconds + 0.5));
    const uint32_t rows = pairs * set.tokens[random.Below(set.tokens.size())];
    videos.push_back({.llm_length = rows + random.Length(4.2, 0.8, 8, 2000),
                      .items = {{Medium::kVideo, {4 * rows, 4 * rows, rows}}}});
  }
  return videos;
}

// DHP 6.1: eight nodes of eight Ascend 910B, 64 GB each, InfiniBand of 100 Gbit/s. Activations are kept.
inline Machine DhpMachine() {
  return {.peak_flops = 313e12,
          .intra_node_bandwidth = 196e9,
          .inter_node_bandwidth = 12.5e9,
          .memory_bytes = 64e9,
          .recompute = false};
}

// Every phase of the model on ranks 0 to ranks - 1.
inline Job JobOfModel(const TrainingModel& model, uint32_t ranks, uint32_t ranks_per_node) {
  Job job;
  job.ranks_per_node = ranks_per_node;
  for (const PhaseModel& phase : model.phases) {
    PhaseSpec& spec = job.phases.emplace_back();
    spec.phase = phase.phase;
    for (uint32_t r = 0; r < ranks; ++r) spec.ranks.push_back(r);
  }
  return job;
}

// Mean seconds of a step by policy: 64 ranks, 512 sequences a step of a set of 20,000, whose longest one the
// degrees of trainers without a planner hold.
inline absl::StatusOr<std::map<std::string, double>> SecondsOfDegrees(const char* model_name,
                                                                      const VideoSet& set, uint64_t seed,
                                                                      int steps, const Machine& machine) {
  const TrainingModel& model = *FindTrainingModel(model_name);
  const Job job = JobOfModel(model, 64, 8);
  const std::vector<SampleLengths> videos = DrawVideos(set, seed, 20000);
  const uint64_t longest = LongestOf(videos);
  std::map<std::string, double> seconds;
  for (const DegreePolicy& policy : DegreePolicies()) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::vector<uint32_t> degrees,
                              DegreesOfARun(policy, job, longest, model, machine));
    double& best = seconds[std::string(policy.name)];
    for (uint32_t degree : degrees) {
      double mean = 0;
      for (int step = 0; step < steps; ++step) {
        StepSamples samples{.step = static_cast<uint64_t>(step)};
        const size_t begin = static_cast<size_t>(step) * 512;
        samples.lengths.assign(videos.begin() + static_cast<ptrdiff_t>(begin),
                               videos.begin() + static_cast<ptrdiff_t>(begin + 512));
        for (size_t s = 0; s < 512; ++s) samples.refs.push_back({0, 0, begin + s});
        EVENKEEL_ASSIGN_OR_RETURN(const StepFigures figures,
                                  ModelDegrees(policy, job, samples, model, machine, degree));
        mean += figures.iteration_seconds / steps;
      }
      if (best == 0 || mean < best) best = mean;
    }
  }
  return seconds;
}

}  // namespace evenkeel::advise
