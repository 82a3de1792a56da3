// The stream: a job with its processor, index and sampler, opened and checked against one another. It is
// everything that plan(step) and part(step) depend on.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(Job job, LoadJob("job.yaml"));
//     EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, OpenStream(std::move(job)));
//     EVENKEEL_ASSIGN_OR_RETURN(StepPlan plan, PlanStep(*stream, 12));
//
// Immutable once opened. Thread safety: safe to read from many threads.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/plan.h"
#include "dataset/format/table.h"
#include "dataset/index/index.h"
#include "dataset/order/read_runs.h"
#include "dataset/order/sampler.h"
#include "dataset/source/byte_source.h"
#include "preprocess/processor.h"
#include "reorder/planner.h"
#include "stream/text_cache.h"

namespace evenkeel::stream {

// Members in the order of their lifetimes: later members use earlier ones.
struct Stream {
  Job job;
  std::unique_ptr<dataset::ByteSource> source;
  std::unique_ptr<preprocess::Processor> processor;
  std::unique_ptr<dataset::Index> index;
  std::unique_ptr<dataset::Sampler> sampler;
  std::unique_ptr<dataset::ReadRuns> read_runs;
  std::unique_ptr<TextCache> texts;                // null where the job does not cut texts
  std::array<MediaFacts, kMaxPhases> dummy_facts;  // by the phase's number; the llm has none
  reorder::DummyItems dummies;
  Digest stream_digest;
  Digest layout_digest;
  std::optional<uint64_t> num_steps;  // see FindEnd; without one it has no end, or FindEnd was not called
};

// The maximum and the mean of a quantity over the ranks of a phase.
struct Spread {
  double max = 0;
  double mean = 0;
};
struct LoadSpreads {
  Spread before, after;                // of PhasePlan::load_before, load_after
  Spread tokens_before, tokens_after;  // of PhasePlan::tokens_before, tokens_after
};

// A step as sampled and as planned. `plan.samples` is parallel to `samples.refs`.
struct StepPlan {
  StepSamples samples;
  Plan plan;
  std::vector<LoadSpreads> spreads;  // parallel to plan.phases; part of every rank's reply, so computed once
};

// `reading` is how objects of stores are read; an index in a store is copied below `cache_folder`. Errors of FetchIndex,
// Processor::Load, which takes `python`, Index::Open and Sampler::Make.
absl::StatusOr<std::unique_ptr<Stream>> OpenStream(
    Job job, std::shared_ptr<preprocess::PythonProcesses> python = nullptr, dataset::FarReading reading = {},
    const std::string& cache_folder = "");

// What puts the job's samples into bins; null where the job does not pack. `job` has passed reorder::CheckJob.
std::unique_ptr<const dataset::Packer> PackerOf(const Job& job);

// Makes the members that follow from the others: dummies, digests and runs.
absl::Status FinishStream(Stream& stream);

// As Sampler::Samples, but works until the step is reached, however long that takes: for interactive
// commands. `report` is called before every slice of work, about every 0.2 s, with what is left to do.
absl::StatusOr<StepSamples> ReachSamples(const Stream& stream, uint64_t step,
                                         const std::function<void(const absl::Status& not_yet)>& report);

// Sets num_steps where every dataset of the job has max_epochs. With a budget of tokens, bins or chunks it cuts all windows up
// to the end, 0.1 s for some 65,000 draws, unless the index has them from an earlier time. Errors of Sampler::NumSteps.
absl::Status FindEnd(Stream& stream);

// Samples and plans one step. In debug builds every plan is checked. Errors of Sampler::Samples and MakePlan.
absl::StatusOr<StepPlan> PlanStep(const Stream& stream, uint64_t step);

// Memory that a plan occupies in bytes, including the allocator's overhead.
uint64_t StepPlanBytes(const StepPlan& plan);

}  // namespace evenkeel::stream
