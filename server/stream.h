// Everything a worker knows: a job with its processor, index and sampler, opened and checked against one
// another.
//
//   EVENKEEL_ASSIGN_OR_RETURN(Job job, LoadJob("job.yaml"));
//   EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, OpenStream(std::move(job)));
//   EVENKEEL_ASSIGN_OR_RETURN(StepPlan plan, PlanStep(*stream, 12));
//
// Immutable once opened. Thread safety: safe to read from many threads.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/plan.h"
#include "dataset/byte_source.h"
#include "dataset/index.h"
#include "dataset/sampler.h"
#include "preprocess/processor.h"
#include "reorder/planner.h"
#include "server/isolated_processor.h"

namespace evenkeel {

// Members in the order of their lifetimes: what comes later uses what comes before.
struct Stream {
  Job job;
  std::unique_ptr<ByteSource> source;
  std::unique_ptr<Processor> processor;
  const IsolatedProcessor* isolated = nullptr;  // `processor`, where decoder processes run
  std::unique_ptr<Index> index;
  std::unique_ptr<Sampler> sampler;
  std::array<MediaFacts, kNumPhases> dummy_facts;  // indexed by Phase
  DummyItems dummies;
  Digest stream_digest;
  Digest layout_digest;
};

// A step as sampled and as planned. `plan.samples` is parallel to `samples.refs`.
struct StepPlan {
  StepSamples samples;
  Plan plan;
};

// Errors of Processor::Load, Index::Open and Sampler::Make.
absl::StatusOr<std::unique_ptr<Stream>> OpenStream(Job job);

// Has `decoders` decode the media that the job isolates, unless they are null.
void Isolate(Stream& stream, std::unique_ptr<DecoderPool> decoders);

// Fills what follows from the other members: dummies and digests.
absl::Status FinishStream(Stream& stream);

// Samples and plans one step. In debug builds every plan is checked. Errors of Sampler::Samples and MakePlan.
absl::StatusOr<StepPlan> PlanStep(const Stream& stream, uint64_t step);

// Memory that a plan holds, about.
uint64_t StepPlanBytes(const StepPlan& plan);

}  // namespace evenkeel
