// `evenkeel size`: measures the CPU time that the job's own samples take on this machine, and computes from it how many cores and
// workers a step time needs.
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands.h"
#include "cli/job_arguments.h"
#include "cli/progress.h"
#include "cli/quoted.h"
#include "cli/sample_work.h"
#include "core/failure.h"
#include "core/status.h"
#include "dataset/index/index.h"
#include "stream/stream.h"

namespace evenkeel::cli {
namespace {

constexpr uint64_t kWarmUpSamples = 4;  // run first and not counted: they fill caches and scratch memory
constexpr uint64_t kMaxStepsLookedAt = 1000;

struct SizeArguments {
  JobArguments job;
  double step_seconds = 0;
  uint64_t samples = 200;
  double margin = 1.5;
  uint64_t worker_cores = 16;
  bool json = false;
};

// Of the process: decoders of libraries may have threads of their own.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Things of one medium and about one size.
struct Group {
  Medium medium = Medium::kText;
  int size = 0;  // the power of two below it: megapixels, seconds, their product or thousands of tokens
  friend auto operator<=>(const Group&, const Group&) = default;
};
struct Work {
  uint64_t count = 0;
  uint64_t failed = 0;  // damaged items, which cost what they cost
  double cpu_seconds = 0;
};
using Works = std::map<Group, Work>;

int PowerBelow(double size) { return size <= 0 ? -20 : std::clamp(std::ilogb(size), -20, 20); }

// Videos are measured by their pixels over time: short and large ones cost as long and small ones.
double SizeOf(const MediaFacts& facts) {
  const double megapixels = 1e-6 * facts.width * facts.height,
               seconds = 1e-6 * static_cast<double>(facts.duration_us);
  return facts.medium == Medium::kImage   ? megapixels
         : facts.medium == Medium::kVideo ? megapixels * seconds
                                          : seconds;
}

std::string_view UnitOf(Medium medium) {
  switch (medium) {
    case Medium::kImage:
      return "megapixels";
    case Medium::kVideo:
      return "megapixel seconds";
    case Medium::kAudio:
      return "seconds";
    case Medium::kText:
      break;
  }
  return "thousand tokens";
}

// Runs what a worker runs for a sample, on one thread.
class Meter {
 public:
  explicit Meter(const stream::Stream& stream)
      : stream_(stream), work_(stream.job.limits, *stream.processor, *stream.source) {}

  absl::Status Run(const SampleRef& ref, const SampleLengths& lengths, Works& works) {
    EVENKEEL_ASSIGN_OR_RETURN(const dataset::SamplePlaces places,
                              stream_.index->places(ref.dataset, ref.index));
    EVENKEEL_RETURN_IF_ERROR(
        ForEachItem(places, lengths, [&](const dataset::ItemPlace& place, const SampleItem& item) {
          return Count([&] { return work_.Produce(places.shard_path, place, item); },
                       works[{item.medium, PowerBelow(SizeOf(place.facts))}]);
        }));
    return Count([&] { return work_.BuildSequence(places, lengths).status(); },
                 works[{Medium::kText, PowerBelow(1e-3 * lengths.llm_length)}]);
  }

 private:
  template <typename Body>
  absl::Status Count(const Body& body, Work& work) {
    const double begin = CpuSeconds();
    const absl::Status status = body();
    work.cpu_seconds += CpuSeconds() - begin;
    ++work.count;
    if (status.ok()) return status;
    if (KnownKind(status) == FailureKind::kMachine) return status;
    ++work.failed;
    return absl::OkStatus();
  }

  const stream::Stream& stream_;
  SampleWork work_;
};

struct Measured {
  Works works;
  uint64_t samples = 0;
  double samples_a_step = 0;
  double cpu_a_sample = 0;
};

absl::StatusOr<Measured> Measure(const stream::Stream& stream, uint64_t wanted) {
  Measured out;
  Meter meter(stream);
  uint64_t steps = 0, drawn = 0, warm_up = 0;
  while (out.samples < wanted && steps < kMaxStepsLookedAt) {
    EVENKEEL_ASSIGN_OR_RETURN(const StepSamples step,
                              stream::ReachSamples(stream, steps, PrintEveryFewSeconds()));
    ++steps;
    drawn += step.refs.size();
    for (size_t i = 0; i < step.refs.size() && out.samples < wanted; ++i) {
      Works ignored;
      for (; warm_up < kWarmUpSamples; ++warm_up)
        EVENKEEL_RETURN_IF_ERROR(meter.Run(step.refs[i], step.lengths[i], ignored));
      EVENKEEL_RETURN_IF_ERROR(meter.Run(step.refs[i], step.lengths[i], out.works));
      ++out.samples;
    }
  }
  for (const auto& [group, work] : out.works)
    out.cpu_a_sample += work.cpu_seconds / static_cast<double>(out.samples);
  out.samples_a_step = static_cast<double>(drawn) / static_cast<double>(steps);
  return out;
}

// What follows for the wanted step time.
struct Need {
  double cpu_seconds = 0;  // of a step
  uint64_t cores = 0;
  double cores_a_rank = 0;
  uint64_t workers = 0;
};

Need NeedOf(const Measured& measured, const SizeArguments& arguments, size_t num_ranks) {
  Need need;
  need.cpu_seconds = measured.cpu_a_sample * measured.samples_a_step;
  const double cores = need.cpu_seconds * arguments.margin / arguments.step_seconds;
  need.cores = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(cores)));
  need.cores_a_rank = cores / static_cast<double>(num_ranks);
  need.workers = (need.cores + arguments.worker_cores - 1) / arguments.worker_cores;
  return need;
}

void PrintText(const Measured& measured, const Need& need, const SizeArguments& arguments, size_t num_ranks) {
  std::cout << absl::StrFormat("measured    %d samples on one thread, %.1f ms of CPU each\n\n",
                               measured.samples, 1e3 * measured.cpu_a_sample);
  std::cout << absl::StrFormat("%-8s %-32s %8s %12s %14s %8s\n", "medium", "size", "items", "ms an item",
                               "items/s/core", "share");
  for (const auto& [group, work] : measured.works) {
    const double ms = 1e3 * work.cpu_seconds / static_cast<double>(work.count);
    const std::string size =
        absl::StrFormat("%g to %g %s", std::ldexp(1, group.size), std::ldexp(1, group.size + 1),
                        std::string(UnitOf(group.medium)));
    std::cout << absl::StrFormat(
        "%-8s %-32s %8d %12.3f %14.1f %7.1f%%\n", std::string(MediumName(group.medium)), size, work.count, ms,
        1e3 / std::max(ms, 1e-6),
        100 * work.cpu_seconds / (measured.cpu_a_sample * static_cast<double>(measured.samples)));
    if (work.failed > 0)
      std::cout << "         " << work.failed
                << " of these cannot be delivered; evenkeel index --verify names them\n";
  }
  std::cout << absl::StrFormat("\na step      %.1f samples, %.2f s of CPU, %d ranks\n",
                               measured.samples_a_step, need.cpu_seconds, num_ranks)
            << absl::StrFormat(
                   "cores       %d for a step every %g s, with a margin of %g (%.2f cores a rank)\n",
                   need.cores, arguments.step_seconds, arguments.margin, need.cores_a_rank)
            << absl::StrFormat("workers     %d of %d cores each\n", need.workers, arguments.worker_cores);
}

void PrintJson(const Measured& measured, const Need& need, const SizeArguments& arguments, size_t num_ranks) {
  std::string groups;
  for (const auto& [group, work] : measured.works) {
    absl::StrAppendFormat(
        &groups,
        R"(%s{"medium":%s,"unit":%s,"from":%g,"to":%g,"items":%d,"undeliverable":%d,"cpu_seconds":%.9f})",
        groups.empty() ? "" : ",", Quoted(MediumName(group.medium)), Quoted(UnitOf(group.medium)),
        std::ldexp(1, group.size), std::ldexp(1, group.size + 1), work.count, work.failed, work.cpu_seconds);
  }
  std::cout << absl::StrFormat(
      R"({"samples":%d,"cpu_seconds_a_sample":%.9f,"samples_a_step":%.3f,"cpu_seconds_a_step":%.6f,"ranks":%d,"step_seconds":%g,)"
      R"("margin":%g,"cores":%d,"cores_a_rank":%.6f,"worker_cores":%d,"workers":%d,"groups":[%s]})"
      "\n",
      measured.samples, measured.cpu_a_sample, measured.samples_a_step, need.cpu_seconds, num_ranks,
      arguments.step_seconds, arguments.margin, need.cores, need.cores_a_rank, arguments.worker_cores,
      need.workers, groups);
}

absl::Status Size(const SizeArguments& arguments) {
  EVENKEEL_ASSIGN_OR_RETURN(Job job, LoadJobOf(arguments.job));
  if (!job.processor.python.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.job.job,
                     ": processor.python: items are made by processes of Python, whose CPU time is not "
                     "measured here; bench/python_processor.py measures it"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(const std::unique_ptr<stream::Stream> stream, stream::OpenStream(std::move(job)));
  EVENKEEL_ASSIGN_OR_RETURN(const Measured measured, Measure(*stream, arguments.samples));
  const size_t num_ranks = stream->job.phase(Phase::kLlm)->ranks.size();
  const Need need = NeedOf(measured, arguments, num_ranks);
  arguments.json ? PrintJson(measured, need, arguments, num_ranks)
                 : PrintText(measured, need, arguments, num_ranks);
  return absl::OkStatus();
}

}  // namespace

void AddSizeCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("size", kSizeDescription);
  auto arguments = std::make_shared<SizeArguments>();
  AddJobOptions(*command, arguments->job);
  command->add_option("--step-seconds", arguments->step_seconds, "Time of a training step")
      ->required()
      ->check(CLI::Range(1e-3, 1e6));
  command->add_option("--samples", arguments->samples, "Samples to measure, from step 0 on")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command
      ->add_option("--margin", arguments->margin,
                   "Factor for what is not measured: sending, hashing, idle cores, uneven steps")
      ->check(CLI::Range(1.0, 100.0))
      ->capture_default_str();
  command->add_option("--worker-cores", arguments->worker_cores, "Cores of one worker")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "One JSON document");
  command->callback([arguments, exit_code] { *exit_code = Report(Size(*arguments)); });
}

}  // namespace evenkeel::cli
