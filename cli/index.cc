// `evenkeel index`: makes or updates an index, and optionally verifies that every item can be decoded.
#include "dataset/index/index.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/commands.h"
#include "cli/index_verify.h"
#include "cli/interrupt.h"
#include "cli/isolation.h"
#include "cli/progress.h"
#include "cli/python.h"
#include "cli/quoted.h"
#include "cli/unpack_options.h"
#include "core/address.h"
#include "core/job_where.h"
#include "core/no_index.h"
#include "core/status.h"
#include "dataset/format/shard_list.h"
#include "dataset/format/table.h"
#include "dataset/index/far_index.h"
#include "dataset/index/index_builder.h"
#include "dataset/index_prune.h"
#include "isolation/isolated_processor.h"
#include "preprocess/job_words.h"
#include "preprocess/processor.h"

namespace evenkeel::cli {
namespace {

struct IndexArguments {
  std::string job;
  IsolationArguments isolation;
  PythonArguments python;
  size_t threads = 0;
  bool json = false;
  bool verify = false;
  bool verify_content = false;
  bool prune = false;
  std::string max_excluded = "5%";
  std::string part;
  dataset::UnpackOptions unpack;
};

// What streams of the job draw from a dataset.
struct Drawn {
  std::string dataset;
  std::string split;  // empty: the job has none
  uint64_t samples = 0;
  uint64_t left_out_by_where = 0;
};

// Results of the optional parts of a run.
struct Extras {
  std::vector<Drawn> drawn;  // where a dataset has conditions, or the job splits
  std::optional<std::vector<BadSample>> bad;
  std::optional<dataset::PruneSummary> pruned;
  bool written = true;  // false: too many samples are excluded
};

constexpr uint32_t kMaxParts = 100000;
constexpr size_t kListed = 20;  // exclusions printed as text; --json lists all

std::string NameOf(const dataset::Exclusion& exclusion) {
  return absl::StrCat(exclusion.dataset, "/", exclusion.shard, exclusion.key.empty() ? "" : "/",
                      exclusion.key);
}

absl::Status PrintJson(const dataset::IndexSummary& summary, const dataset::IndexBuilder& builder,
                       const Extras& extras) {
  std::cout << "{\"digest\": " << Quoted(summary.digest.Hex())
            << ", \"written\": " << (extras.written ? "true" : "false")
            << ", \"samples\": " << summary.num_samples << ", \"items\": " << summary.num_items
            << ", \"llm_tokens\": " << summary.llm_tokens << ", \"loss_tokens\": " << summary.loss_tokens
            << ", \"shards\": {\"read\": " << summary.shards_read
            << ", \"unchanged\": " << summary.shards_unchanged
            << ", \"remeasured\": " << summary.shards_remeasured
            << ", \"damaged\": " << summary.damaged_shards << "}, \"excluded\": {";
  const char* separator = "";
  for (const auto& [reason, count] : summary.excluded) {
    std::cout << separator << Quoted(reason) << ": " << count;
    separator = ", ";
  }
  std::cout << "}, \"exclusions\": [";
  separator = "";
  EVENKEEL_RETURN_IF_ERROR(builder.ForEachExclusion([&](const dataset::Exclusion& exclusion) {
    std::cout << separator << "{\"sample\": " << Quoted(NameOf(exclusion))
              << ", \"reason\": " << Quoted(exclusion.reason) << ", \"detail\": " << Quoted(exclusion.detail)
              << "}";
    separator = ", ";
  }));
  std::cout << "]";
  if (!extras.drawn.empty()) {
    std::cout << ", \"drawn\": [";
    separator = "";
    for (const Drawn& drawn : extras.drawn) {
      std::cout << separator << "{\"dataset\": " << Quoted(drawn.dataset)
                << ", \"split\": " << Quoted(drawn.split) << ", \"samples\": " << drawn.samples
                << ", \"left_out_by_where\": " << drawn.left_out_by_where << "}";
      separator = ", ";
    }
    std::cout << "]";
  }
  if (extras.pruned) {
    std::cout << ", \"pruned\": {\"files\": " << extras.pruned->files
              << ", \"bytes\": " << extras.pruned->bytes << "}";
  }
  if (extras.bad) {
    std::cout << ", \"undeliverable\": [";
    separator = "";
    for (const BadSample& sample : *extras.bad) {
      std::cout << separator << "{\"sample\": " << Quoted(sample.name)
                << ", \"detail\": " << Quoted(sample.reason) << "}";
      separator = ", ";
    }
    std::cout << "]";
  }
  std::cout << "}\n";
  return absl::OkStatus();
}

absl::Status PrintText(const dataset::IndexSummary& summary, const dataset::IndexBuilder& builder,
                       const Extras& extras) {
  const std::optional<std::vector<BadSample>>& bad = extras.bad;
  std::cout << "samples     " << summary.num_samples << "\n"
            << "items       " << summary.num_items << "\n"
            << "llm tokens  " << summary.llm_tokens << " (" << summary.loss_tokens << " with loss)\n"
            << "shards      " << summary.shards_read << " read, " << summary.shards_remeasured
            << " measured again, " << summary.shards_unchanged << " unchanged\n";
  uint64_t total = 0;
  for (const auto& [reason, count] : summary.excluded) total += count;
  if (total > 0) std::cout << "excluded    " << total << "\n";
  for (const auto& [reason, count] : summary.excluded) {
    std::cout << absl::StrFormat("  %8d  %s\n", count, reason);
  }
  size_t listed = 0;
  EVENKEEL_RETURN_IF_ERROR(builder.ForEachExclusion([&](const dataset::Exclusion& exclusion) {
    if (++listed > kListed) return;
    std::cout << "  " << NameOf(exclusion) << ": " << exclusion.reason << ": " << exclusion.detail << "\n";
  }));
  if (listed > kListed) std::cout << "  ... and " << listed - kListed << " more; --json lists all\n";
  for (const Drawn& drawn : extras.drawn) {
    std::cout << "drawn       " << drawn.samples << " of " << drawn.dataset
              << (drawn.split.empty() ? "" : ", split ") << drawn.split;
    if (drawn.left_out_by_where > 0) std::cout << "; `where` leaves out " << drawn.left_out_by_where;
    std::cout << "\n";
  }
  if (extras.pruned) {
    std::cout << "pruned      " << extras.pruned->files << " files, " << extras.pruned->bytes << " bytes\n";
    // Samples that --verify found.
  }
  if (bad) std::cout << "verified    " << bad->size() << " samples that cannot be delivered\n";
  if (bad && !bad->empty()) {
    for (const BadSample& sample : *bad) std::cerr << "  " << sample.name << ": " << sample.reason << "\n";
    std::cout << "For the job file:\nexclude:\n";
    for (const BadSample& sample : *bad) std::cout << "  - " << Quoted(sample.name) << "\n";
  }
  if (extras.written) std::cout << "digest      " << summary.digest.Hex() << "\n";
  return absl::OkStatus();
}

// "5%" -> 0.05.
absl::StatusOr<double> ParseShare(const std::string& text) {
  double percent = 0;
  if (text.empty() || text.back() != '%' ||
      !absl::SimpleAtod(absl::string_view(text.data(), text.size() - 1), &percent) ||
      !(percent >= 0 && percent <= 100)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max-excluded must be a percentage from 0% to 100%, got '", text, "'"));
  }
  return percent / 100;
}

// "3/64" -> {3, 64}; empty: everything.
absl::StatusOr<dataset::IndexPart> ParsePart(const std::string& text) {
  dataset::IndexPart part;
  if (text.empty()) return part;
  const std::vector<std::string> numbers = absl::StrSplit(text, '/');
  if (numbers.size() == 2 && absl::SimpleAtoi(numbers[0], &part.number) &&
      absl::SimpleAtoi(numbers[1], &part.count) && part.number < part.count && part.count <= kMaxParts)
    return part;
  return absl::InvalidArgumentError(absl::StrCat("--part must be K/N with K from 0 to N - 1 and N at most ",
                                                 kMaxParts, ", got '", text, "'"));
}

// DataLoss: more samples are excluded than the limit allows. A missing phase or a wrong folder excludes most
// of the data, every sample for a valid reason, and training on the rest must be a choice.
absl::Status CheckExcluded(const dataset::IndexSummary& summary, double max_share, const std::string& index) {
  const uint64_t excluded = summary.num_excluded();
  const uint64_t total = excluded + summary.num_samples;
  if (static_cast<double>(excluded) <= max_share * static_cast<double>(total)) return absl::OkStatus();
  const auto most = std::max_element(summary.excluded.begin(), summary.excluded.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return absl::DataLossError(absl::StrFormat(
      "%d of %d samples are excluded, more than --max-excluded %s allows; %s was not changed. The most "
      "frequent reason "
      "is '%s' (%d). Fix the cause, or pass a larger --max-excluded to train without these samples",
      excluded, total, absl::StrFormat("%g%%", 100 * max_share), index, most->first, most->second));
}

absl::StatusOr<std::vector<Drawn>> CountDrawn(Job job, const Digest& processor, dataset::ByteSource& source) {
  std::vector<Drawn> drawn;
  const bool has_conditions =
      std::ranges::any_of(job.datasets, [](const DatasetSpec& dataset) { return !dataset.where.empty(); });
  const size_t splits = job.splits.empty() ? (has_conditions ? 1 : 0) : job.splits.size();
  for (job.split = 0; job.split < splits; ++job.split) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::unique_ptr<dataset::Index> index,
                              dataset::Index::Open(job, processor, source));
    for (uint32_t d = 0; d < job.datasets.size(); ++d) {
      drawn.push_back({.dataset = job.datasets[d].name,
                       .split = job.splits.empty() ? "" : job.splits[job.split].name,
                       .samples = index->num_samples(d),
                       .left_out_by_where = index->left_out(d).by_where});
    }
  }
  return drawn;
}

// All samples of all datasets.
Job WithoutSelection(Job job) {
  job.splits.clear();
  for (DatasetSpec& dataset : job.datasets) dataset.where.clear();
  return job;
}

// Builds the part's shards. What is built when it fails or is interrupted is not built again by the next run.
absl::Status BuildShards(dataset::IndexBuilder& builder, size_t threads) {
  EVENKEEL_RETURN_IF_ERROR(builder.Prepare());
  const absl::Status built =
      RunInParallel(builder.num_shards(), threads, "shards", [&](size_t i) { return builder.BuildShard(i); });
  if (!built.ok()) (void)builder.SaveProgress();
  return built;
}

// In a store the index is new once it is there; until then the copy keeps what was built for the next run.
absl::Status CommitTo(const std::string& address, const Job& job, dataset::IndexBuilder& builder) {
  EVENKEEL_RETURN_IF_ERROR(builder.Commit());
  if (!IsAddress(address)) return absl::OkStatus();
  EVENKEEL_RETURN_IF_ERROR(builder.SaveProgress());
  EVENKEEL_RETURN_IF_ERROR(dataset::PublishIndex(job, address));
  return builder.Commit();
}

// What needs other files of the index than those of the job.
absl::Status CheckFolder(const Job& job, const dataset::IndexPart& part, bool prune) {
  if (!IsAddress(job.index) || (part.count == 1 && !prune)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      part.count > 1 ? "--part" : "--prune", " works on a folder, and the index of ", job.path, " is ",
      job.index,
      part.count > 1 ? ": give the parts a job with a folder that all of them reach"
                     : ": use a rule of the bucket's life cycle, or a new folder of the bucket"));
}

int ExitCodeOf(const dataset::IndexSummary& summary, const Extras& extras) {
  if (summary.damaged_shards > 0) {
    std::cerr << "evenkeel: " << summary.damaged_shards
              << " damaged shards; the index has the samples before the damage\n";
  }
  const bool all_good = summary.damaged_shards == 0 && (!extras.bad || extras.bad->empty());
  return all_good ? kOk : kBadData;
}

absl::StatusOr<int> MakeIndex(const IndexArguments& arguments) {
  EVENKEEL_ASSIGN_OR_RETURN(const double max_excluded, ParseShare(arguments.max_excluded));
  EVENKEEL_ASSIGN_OR_RETURN(const dataset::IndexPart part, ParsePart(arguments.part));
  if (part.count > 1 && arguments.prune)
    return absl::InvalidArgumentError("--prune belongs to the run without --part, which makes the index");
  Interrupt::Block();
  EVENKEEL_ASSIGN_OR_RETURN(Job job, LoadJob(arguments.job));
  EVENKEEL_RETURN_IF_ERROR(CheckFolder(job, part, arguments.prune));
  if (const absl::Status words = preprocess::CheckJob(job); !words.ok()) return NameInJob(job, words);
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<isolation::DecoderPool> decoders,
                            StartDecoders(arguments.isolation, job));
  Interrupt interrupt([] {
    std::cerr << "\nevenkeel: interrupted; finishing the shards in progress (interrupt again to stop at "
                 "once); the next "
                 "run goes on from there\n";
  });
  EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<isolation::PythonPool> python,
                            StartPython(arguments.python, job, decoders.get()));
  absl::StatusOr<std::unique_ptr<preprocess::Processor>> loaded =
      preprocess::Processor::Load(job.processor, job.limits, std::move(python));
  if (!loaded.ok()) return NameInJob(job, loaded.status());
  const std::unique_ptr<preprocess::Processor> processor =
      isolation::WithDecoders(*std::move(loaded), std::move(decoders), job);
  std::unique_ptr<dataset::ByteSource> source =
      dataset::MakeShardSource(job.stores, {.unpack = arguments.unpack});
  const std::string address = job.index;
  if (const absl::Status fetched = dataset::FetchIndex(job); !fetched.ok() && !IsNoIndex(fetched))
    return fetched;
  EVENKEEL_RETURN_IF_ERROR(dataset::ListShards(*source, job));
  const size_t threads =
      arguments.threads != 0 ? arguments.threads : std::max(1u, std::thread::hardware_concurrency());

  dataset::IndexBuilder builder(job, *processor, *source,
                                {.part = part, .verify_content = arguments.verify_content});
  EVENKEEL_RETURN_IF_ERROR(BuildShards(builder, threads));
  EVENKEEL_ASSIGN_OR_RETURN(const dataset::IndexSummary summary, builder.Summarise());

  Extras extras;
  if (part.count > 1) {
    // A part that is made again after the merge: then there is an index to verify.
    EVENKEEL_RETURN_IF_ERROR(builder.Commit());
    extras.written = false;
    if (arguments.verify) {
      EVENKEEL_ASSIGN_OR_RETURN(extras.bad,
                                VerifyIndex(WithoutSelection(job), *processor, *source, threads, part));
    }
    EVENKEEL_RETURN_IF_ERROR(arguments.json ? PrintJson(summary, builder, extras)
                                            : PrintText(summary, builder, extras));
    return ExitCodeOf(summary, extras);
  }
  if (const absl::Status few = CheckExcluded(summary, max_excluded, address); !few.ok()) {
    extras.written = false;
    EVENKEEL_RETURN_IF_ERROR(arguments.json ? PrintJson(summary, builder, extras)
                                            : PrintText(summary, builder, extras));
    return few;
  }
  EVENKEEL_RETURN_IF_ERROR(CommitTo(address, job, builder));
  if (arguments.prune) {
    EVENKEEL_ASSIGN_OR_RETURN(extras.pruned, dataset::PruneIndex(job, processor->digest(), *source));
  }
  EVENKEEL_ASSIGN_OR_RETURN(extras.drawn, CountDrawn(job, processor->digest(), *source));
  if (arguments.verify) {
    EVENKEEL_ASSIGN_OR_RETURN(extras.bad, VerifyIndex(WithoutSelection(job), *processor, *source, threads));
  }
  EVENKEEL_RETURN_IF_ERROR(arguments.json ? PrintJson(summary, builder, extras)
                                          : PrintText(summary, builder, extras));
  return ExitCodeOf(summary, extras);
}

}  // namespace

void AddIndexCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("index", kIndexDescription);
  auto arguments = std::make_shared<IndexArguments>();
  command->add_option("--job", arguments->job, "The job file")->required();
  command->add_option("--threads", arguments->threads, "Threads that read shards (default: one per core)")
      ->check(CLI::Range(1, 1024));
  AddIsolationOptions(*command, arguments->isolation);
  AddPythonOptions(*command, arguments->python);
  AddUnpackOptions(*command, arguments->unpack);
  command->add_flag("--json", arguments->json, "One JSON document, with every exclusion, instead of text");
  command->add_flag(
      "--verify", arguments->verify,
      "Then decode every item like a worker, and print exclude lines of the job for the bad ones");
  command->add_flag("--verify-content", arguments->verify_content,
                    "Hash every shard instead of trusting its size, time and inode");
  command
      ->add_option(
          "--max-excluded", arguments->max_excluded,
          "Share of samples that may be excluded; if more are, the old index stays and the exit code is 5")
      ->capture_default_str();
  command->add_option("--part", arguments->part,
                      "K/N: only every N-th shard, from number K on; a run without it then makes the index");
  command->add_flag("--prune", arguments->prune,
                    "Then remove files that the index no longer needs; no worker may use an older index");
  command->footer(
      "Only shards that are new or changed are read; another processor measures again without reading "
      "media.\n"
      "Interrupted at any time, it leaves the old index or the new one.\n"
      "Exit code: 0 good (single samples may be excluded, with their reasons), 5 a shard is damaged or "
      "--verify found\n"
      "samples that cannot be delivered (the index is written), or more than --max-excluded were excluded "
      "(it is "
      "not),\n"
      "2 bad job or missing shard, 1 otherwise.");
  command->callback([arguments, exit_code] {
    absl::StatusOr<int> code = MakeIndex(*arguments);
    *exit_code = code.ok() ? *code : Report(code.status());
  });
}

}  // namespace evenkeel::cli
