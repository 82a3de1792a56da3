// Opens a stream and plans its steps.
#include "stream/stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/job_where.h"
#include "core/status.h"
#include "dataset/format/shard_list.h"
#include "dataset/format/table.h"
#include "dataset/index/far_index.h"
#include "preprocess/job_words.h"
#include "stream/bin_packer.h"

namespace evenkeel::stream {
namespace {

// What the allocator takes for a block in addition to its bytes: its header, rounded up.
constexpr uint64_t kBlockOverhead = 24;

template <typename T>
uint64_t BytesOf(const std::vector<T>& values) {
  return values.capacity() == 0 ? 0 : values.capacity() * sizeof(T) + kBlockOverhead;
}

// A dummy stands in if a rank must run a phase without an item; its size depends on the processor alone.
absl::Status MeasureDummies(Stream& stream) {
  for (const PhaseSpec& spec : stream.job.phases) {
    if (spec.phase == Phase::kLlm) continue;
    const MediaFacts facts = stream.processor->DummyFacts(spec.phase);
    const uint8_t tower = stream.job.TowerOf(spec.phase, facts.medium);
    EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, stream.processor->MeasureIn(tower, facts));
    stream.dummy_facts[spec.phase.number()] = facts;
    stream.dummies[spec.phase.number()] = {.medium = facts.medium, .lengths = lengths, .tower = tower};
  }
  return absl::OkStatus();
}

// How many samples are looked at for a target before a generator is taken to have some.
constexpr uint64_t kSamplesForTargets = 65536;

bool HasTarget(const SampleLengths& lengths, const Phase& generator) {
  return std::any_of(lengths.items.begin(), lengths.items.end(), [&](const SampleItem& item) {
    return item.tower == kTargetTower && generator.generates(item.medium);
  });
}

// A generator that the data have nothing for would train nothing, and nobody would see it.
absl::Status CheckTargets(const Stream& stream, const Phase& generator) {
  uint64_t seen = 0;
  for (uint32_t d = 0; d < stream.job.datasets.size(); ++d) {
    for (uint64_t i = 0; i < stream.index->num_samples(d); ++i) {
      if (++seen > kSamplesForTargets) return absl::OkStatus();
      EVENKEEL_ASSIGN_OR_RETURN(const SampleLengths lengths, stream.index->lengths(d, i));
      if (HasTarget(lengths, generator)) return absl::OkStatus();
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("phase ", std::string(generator.name()), ": none of the ", seen,
                   " samples has a target: its targets are ", MediaNames(generator),
                   " items in turns of the assistant; add such chats to the datasets, or remove the phase"));
}

template <typename T>
Spread SpreadOf(const std::vector<T>& values) {
  Spread out;
  double sum = 0;
  for (const T value : values) {
    out.max = std::max(out.max, static_cast<double>(value));
    sum += static_cast<double>(value);
  }
  if (!values.empty()) out.mean = sum / static_cast<double>(values.size());
  return out;
}

}  // namespace

absl::Status FinishStream(Stream& stream) {
  EVENKEEL_RETURN_IF_ERROR(MeasureDummies(stream));
  for (const PhaseSpec& spec : stream.job.phases) {
    if (spec.phase.is_generator()) EVENKEEL_RETURN_IF_ERROR(CheckTargets(stream, spec.phase));
  }
  stream.stream_digest = StreamDigest(stream.job, stream.index->digest(), stream.processor->digest());
  stream.layout_digest = LayoutDigest(stream.job);
  stream.read_runs = std::make_unique<dataset::ReadRuns>(stream.job, *stream.index);
  if (stream.job.batch.chunk.count > 0) stream.texts = std::make_unique<TextCache>();
  return absl::OkStatus();
}

std::unique_ptr<const dataset::Packer> PackerOf(const Job& job) {
  return job.batch.pack.bins == 0 ? nullptr : std::make_unique<const BinPacker>(job);
}

absl::StatusOr<std::unique_ptr<Stream>> OpenStream(Job job,
                                                   std::shared_ptr<preprocess::PythonProcesses> python,
                                                   dataset::FarReading reading,
                                                   const std::string& cache_folder) {
  auto stream = std::make_unique<Stream>();
  stream->job = std::move(job);
  if (absl::Status phases = reorder::CheckJob(stream->job); !phases.ok())
    return NameInJob(stream->job, phases);
  if (absl::Status words = preprocess::CheckJob(stream->job); !words.ok())
    return NameInJob(stream->job, words);
  EVENKEEL_RETURN_IF_ERROR(dataset::FetchIndex(stream->job, cache_folder));
  stream->source = dataset::MakeShardSource(stream->job.stores, std::move(reading));
  EVENKEEL_RETURN_IF_ERROR(dataset::ListShards(*stream->source, stream->job));
  absl::StatusOr<std::unique_ptr<preprocess::Processor>> processor =
      preprocess::Processor::Load(stream->job.processor, stream->job.limits, std::move(python));
  if (!processor.ok()) return NameInJob(stream->job, processor.status());
  stream->processor = *std::move(processor);
  EVENKEEL_ASSIGN_OR_RETURN(stream->index,
                            dataset::Index::Open(stream->job, stream->processor->digest(), *stream->source));
  EVENKEEL_ASSIGN_OR_RETURN(stream->sampler,
                            dataset::Sampler::Make(stream->job, *stream->index, PackerOf(stream->job)));
  EVENKEEL_RETURN_IF_ERROR(FinishStream(*stream));
  return stream;
}

absl::StatusOr<StepSamples> ReachSamples(const Stream& stream, uint64_t step,
                                         const std::function<void(const absl::Status& not_yet)>& report) {
  for (;;) {
    absl::StatusOr<StepSamples> samples = stream.sampler->Samples(step);
    if (KindOf(samples.status()) != FailureKind::kNotYet) return samples;
    report(samples.status());
    EVENKEEL_RETURN_IF_ERROR(stream.sampler->Extend(step).status());
  }
}

absl::Status FindEnd(Stream& stream) {
  EVENKEEL_ASSIGN_OR_RETURN(stream.num_steps, stream.sampler->NumSteps());
  return absl::OkStatus();
}

absl::StatusOr<StepPlan> PlanStep(const Stream& stream, uint64_t step) {
  StepPlan out;
  EVENKEEL_ASSIGN_OR_RETURN(out.samples, stream.sampler->Samples(step));
  absl::StatusOr<Plan> plan = reorder::MakePlan(stream.job, out.samples, stream.dummies);
  // To a consumer the first would mean a busy worker, which it would ask again.
  if (absl::IsResourceExhausted(plan.status())) {
    return absl::FailedPreconditionError(absl::StrCat("step ", step, ": ", plan.status().message()));
  }
  EVENKEEL_RETURN_IF_ERROR(plan.status());
  out.plan = *std::move(plan);
  for (const PhasePlan& phase : out.plan.phases) {
    out.spreads.push_back({SpreadOf(phase.load_before), SpreadOf(phase.load_after),
                           SpreadOf(phase.tokens_before), SpreadOf(phase.tokens_after)});
  }
#ifndef NDEBUG
  EVENKEEL_RETURN_IF_ERROR(reorder::PlanCheck(stream.job, out.samples, out.plan));
#endif
  return out;
}

uint64_t StepPlanBytes(const StepPlan& plan) {
  uint64_t bytes = sizeof(StepPlan) + kBlockOverhead + BytesOf(plan.samples.refs) +
                   BytesOf(plan.samples.lengths) + BytesOf(plan.samples.pieces) + BytesOf(plan.plan.samples) +
                   BytesOf(plan.plan.items) + BytesOf(plan.plan.phases) + BytesOf(plan.plan.routes) +
                   BytesOf(plan.plan.groups) + BytesOf(plan.spreads);
  for (const SampleLengths& lengths : plan.samples.lengths) bytes += BytesOf(lengths.items);
  for (const PhasePlan& phase : plan.plan.phases) {
    bytes += BytesOf(phase.ranks) + BytesOf(phase.order) + BytesOf(phase.begin) + BytesOf(phase.load_before) +
             BytesOf(phase.load_after) + BytesOf(phase.tokens_before) + BytesOf(phase.tokens_after);
  }
  for (const Route& route : plan.plan.routes) {
    bytes += BytesOf(route.ranks) + BytesOf(route.per_rank);
    for (const RankRoute& rank : route.per_rank) {
      bytes += BytesOf(rank.send) + BytesOf(rank.receive) + BytesOf(rank.microbatch_offsets);
    }
  }
  return bytes;
}

}  // namespace evenkeel::stream
