// `evenkeel init`: looks at some data and a checkpoint, and writes a first job for them.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/commands.h"
#include "cli/found_data.h"
#include "cli/job_draft.h"
#include "core/status.h"

namespace evenkeel::cli {
namespace {

constexpr size_t kListed = 12;  // names in a line

struct InitArguments {
  JobWishes wishes;
  EnergonWishes energon;
  bool force = false;
};

// "jpg 40, json 40": the most frequent first.
std::string Counts(const std::map<std::string, uint64_t>& counts) {
  std::vector<std::pair<std::string, uint64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> words;
  for (const auto& [name, count] : sorted) {
    if (words.size() < kListed) words.push_back(absl::StrCat(name, " ", count));
  }
  if (sorted.size() > kListed) words.push_back(absl::StrCat("and ", sorted.size() - kListed, " more"));
  return absl::StrJoin(words, ", ");
}

void Row(std::string_view name, std::string_view value) {
  std::cout << absl::StrFormat("%-12s%s\n", absl::string_view(name.data(), name.size()),
                               absl::string_view(value.data(), value.size()));
}

std::string WhatShardsAre(DataFormat format) {
  switch (format) {
    case DataFormat::kWebDataset:
      return "tar files";
    case DataFormat::kJson:
      return "JSON files";
    case DataFormat::kParquet:
      return "Parquet tables";
    case DataFormat::kMds:
      return "MDS shards";
    case DataFormat::kText:
      return "texts, a sample a line";
    case DataFormat::kMegatron:
      return "token files of Megatron-LM";
  }
  return "";
}

void PrintFound(const FoundData& data) {
  Row("shards", absl::StrFormat("%d %s, %.1f MB", data.num_shards(), WhatShardsAre(data.datasets[0].format),
                                static_cast<double>(data.bytes) / 1e6));
  if (data.datasets.size() > 1) Row("datasets", absl::StrCat(data.datasets.size()));
  Row("samples", data.is_all ? absl::StrCat(data.samples)
                             : absl::StrCat(data.samples, " looked at, the first of ", data.shards_looked_at,
                                            " shards; the index counts all"));
  Row("members", Counts(data.suffixes));
  Row("text", Counts(data.forms));
  std::vector<std::string> media;
  for (Medium medium : kItemMedia) {
    const auto number = static_cast<size_t>(medium);
    if (data.items[number] == 0) continue;
    media.push_back(absl::StrCat(data.items[number], " ", std::string(MediumName(medium)), " items in ",
                                 data.samples_with[number], " samples"));
  }
  Row("media", media.empty() ? "none" : absl::StrJoin(media, ", "));
  if (!data.unused.empty()) Row("not used", absl::StrCat("keys of the JSON: ", Counts(data.unused)));
  for (const auto& [reason, count] : data.unusable) {
    Row("excluded",
        absl::StrCat(count, " samples: ", reason, "; the first is ", data.first_unusable.at(reason)));
  }
}

absl::Status ExistsError(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, " exists and was not changed; --force overwrites it, --out names another file"));
}

// Writes a new file; with `force` also over an old one.
absl::Status WriteFile(const std::string& path, const std::string& text, bool force) {
  const int descriptor =
      open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (force ? O_TRUNC : O_EXCL), 0666);
  if (descriptor < 0 && errno == EEXIST) return ExistsError(path);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be written"));
  size_t done = 0;
  absl::Status status;
  while (status.ok() && done < text.size()) {
    const ssize_t count = write(descriptor, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) status = absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be written"));
    if (count > 0) done += static_cast<size_t>(count);
  }
  if (close(descriptor) != 0 && status.ok())
    status = absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be written"));
  return status;
}

absl::Status Init(const InitArguments& arguments) {
  const JobWishes& wishes = arguments.wishes;
  // Known before the data are read, which may take long.
  if (!arguments.force && access(wishes.job.c_str(), F_OK) == 0) return ExistsError(wishes.job);
  EVENKEEL_ASSIGN_OR_RETURN(const FoundData data, LookAtData(wishes.data, arguments.energon, Limits{}));
  PrintFound(data);
  EVENKEEL_ASSIGN_OR_RETURN(const JobDraft draft, DraftJob(data, wishes));
  EVENKEEL_RETURN_IF_ERROR(WriteFile(wishes.job, draft.yaml, arguments.force));
  std::cout << "\n" << wishes.job << "\n";
  for (const auto& [value, why] : draft.reasons) std::cout << "  " << value << "\n      " << why << "\n";
  std::cout << "\nNext: evenkeel index --job " << wishes.job << ", or evenkeel.Loader(\"" << wishes.job
            << "\", rank=0) in Python\n";
  return absl::OkStatus();
}

}  // namespace

void AddInitCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("init", kInitDescription);
  auto arguments = std::make_shared<InitArguments>();
  arguments->wishes.job = "job.yaml";
  command
      ->add_option(
          "data", arguments->wishes.data,
          "A folder of shards, or one shard; of Megatron-Energon: a prepared folder, or a metadataset")
      ->required();
  command
      ->add_option("--processor", arguments->wishes.processor,
                   "The checkpoint's folder, with its processor and tokenizer")
      ->required();
  command->add_option("--out", arguments->wishes.job, "The job file to write")->capture_default_str();
  command->add_flag("--force", arguments->force, "Overwrite the job file if it exists");
  command->add_option("--ranks", arguments->wishes.ranks, "Global ranks of the trainer: 0-7")
      ->capture_default_str();
  command
      ->add_option("--samples", arguments->wishes.samples,
                   "Samples of a step, over all ranks (default: 16 for each rank)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 24));
  command->add_option("--chat", arguments->wishes.chat,
                      "How turns are written, as processor.chat (default: the checkpoint's template)");
  command->add_option("--split", arguments->energon.split, "The split of Energon's data (default: train)");
  command->add_flag("--as-tars", arguments->energon.as_tars,
                    "Read the members of Energon's tars as they are, whatever dataset.yaml has");
  command->add_option("--date", arguments->wishes.date, "The day that a chat template writes: YYYY-MM-DD");
  command->footer(
      "It reads headers and texts of a few hundred samples, prints what it found and why it chose each "
      "value, "
      "and loads the\n"
      "checkpoint's processor, so the job is one that `evenkeel index` accepts.");
  command->callback([arguments, exit_code] { *exit_code = Report(Init(*arguments)); });
}

}  // namespace evenkeel::cli
