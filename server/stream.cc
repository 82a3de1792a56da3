#include "server/stream.h"

#include "core/status.h"

namespace evenkeel {
namespace {

template <typename T>
uint64_t BytesOf(const std::vector<T>& values) {
  return values.capacity() * sizeof(T);
}

absl::Status MeasureDummies(Stream& stream) {
  for (Phase phase : kEncoderPhases) {
    if (stream.job.phase(phase) == nullptr) continue;
    const MediaFacts facts = stream.processor->DummyFacts(phase);
    EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, stream.processor->Measure(facts));
    stream.dummy_facts[static_cast<size_t>(phase)] = facts;
    stream.dummies[static_cast<size_t>(phase)] = {.medium = facts.medium, .lengths = lengths};
  }
  return absl::OkStatus();
}

}  // namespace

void Isolate(Stream& stream, std::unique_ptr<DecoderPool> decoders) {
  if (decoders == nullptr) return;
  auto isolated = MakeIsolated(std::move(stream.processor), std::move(decoders), stream.job);
  stream.isolated = isolated.get();
  stream.processor = std::move(isolated);
}

absl::Status FinishStream(Stream& stream) {
  EVENKEEL_RETURN_IF_ERROR(MeasureDummies(stream));
  stream.stream_digest = StreamDigest(stream.job, stream.index->digest(), stream.processor->digest());
  stream.layout_digest = LayoutDigest(stream.job);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Stream>> OpenStream(Job job) {
  auto stream = std::make_unique<Stream>();
  stream->job = std::move(job);
  stream->source = MakeFileSource();
  EVENKEEL_ASSIGN_OR_RETURN(stream->processor, Processor::Load(stream->job.processor, stream->job.limits));
  EVENKEEL_ASSIGN_OR_RETURN(stream->index,
                            Index::Open(stream->job, stream->processor->digest(), *stream->source));
  EVENKEEL_ASSIGN_OR_RETURN(stream->sampler, Sampler::Make(stream->job, *stream->index));
  EVENKEEL_RETURN_IF_ERROR(FinishStream(*stream));
  return stream;
}

absl::StatusOr<StepPlan> PlanStep(const Stream& stream, uint64_t step) {
  StepPlan out;
  EVENKEEL_ASSIGN_OR_RETURN(out.samples, stream.sampler->Samples(step));
  EVENKEEL_ASSIGN_OR_RETURN(out.plan, MakePlan(stream.job, out.samples, stream.dummies));
#ifndef NDEBUG
  EVENKEEL_RETURN_IF_ERROR(PlanCheck(stream.job, out.samples, out.plan));
#endif
  return out;
}

uint64_t StepPlanBytes(const StepPlan& plan) {
  uint64_t bytes = sizeof(StepPlan) + BytesOf(plan.samples.refs) + BytesOf(plan.samples.lengths) +
                   BytesOf(plan.plan.samples) + BytesOf(plan.plan.items) + BytesOf(plan.plan.phases) +
                   BytesOf(plan.plan.routes);
  for (const SampleLengths& lengths : plan.samples.lengths) bytes += BytesOf(lengths.items);
  for (const PhasePlan& phase : plan.plan.phases) {
    bytes +=
        BytesOf(phase.ranks) + BytesOf(phase.order) + BytesOf(phase.begin) + BytesOf(phase.load_before) * 4;
  }
  for (const Route& route : plan.plan.routes) {
    bytes += BytesOf(route.ranks) + BytesOf(route.per_rank);
    for (const RankRoute& rank : route.per_rank) {
      bytes += BytesOf(rank.send) + BytesOf(rank.receive) + BytesOf(rank.microbatch_offsets);
    }
  }
  return bytes;
}

}  // namespace evenkeel
