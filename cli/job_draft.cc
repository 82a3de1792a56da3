// Chooses the values of a first job from what the data contain and from what the checkpoint's processor accepts.
#include "cli/job_draft.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/model_costs.h"
#include "cli/quoted.h"
#include "core/job.h"
#include "core/job_syntax.h"
#include "core/status.h"
#include "preprocess/job_words.h"
#include "preprocess/processor.h"

namespace evenkeel::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSamplesOfARank = 16;
constexpr size_t kReasons = 12;  // datasets that are printed
// `evenkeel index` fails if it excludes more.
constexpr double kMaxShareWithout = 0.05;

// Which phases the job has.
struct Encoders {
  bool vision = false;
  bool audio = false;
  std::vector<std::string> warnings;
};

uint64_t With(const FoundData& data, Medium medium) { return data.samples_with[static_cast<size_t>(medium)]; }

// Why the folder encodes nothing of `media`; OK: it encodes some of them, whose names are appended to `encoded`.
absl::Status Encodes(const std::string& folder, bool audio, std::array<bool, 4>& encoded) {
  ProcessorSpec spec;
  (audio ? spec.audio : spec.vision) = folder;
  EVENKEEL_ASSIGN_OR_RETURN(const auto processor, preprocess::Processor::LoadMedia(spec, Limits{}));
  for (Medium medium : kItemMedia) {
    if ((medium == Medium::kAudio) == audio) {
      encoded[static_cast<size_t>(medium)] = !processor->fields(medium).empty();
    }
  }
  return absl::OkStatus();
}

// The phases for the media of the data. InvalidArgument: too many samples have a medium that the folder cannot encode.
absl::StatusOr<Encoders> ChooseEncoders(const FoundData& data, const std::string& folder) {
  std::array<bool, 4> encoded = {};
  const bool has_pictures = With(data, Medium::kImage) + With(data, Medium::kVideo) > 0;
  const bool has_audio = With(data, Medium::kAudio) > 0;
  const absl::Status vision = has_pictures ? Encodes(folder, /*audio=*/false, encoded) : absl::OkStatus();
  const absl::Status audio = has_audio ? Encodes(folder, /*audio=*/true, encoded) : absl::OkStatus();
  Encoders out;
  const auto usable = static_cast<double>(data.chats + data.captions);
  for (Medium medium : kItemMedia) {
    const uint64_t count = With(data, medium);
    if (count == 0) continue;
    if (encoded[static_cast<size_t>(medium)]) {
      (medium == Medium::kAudio ? out.audio : out.vision) = true;
      continue;
    }
    const absl::Status& why = medium == Medium::kAudio ? audio : vision;
    const std::string what = absl::StrCat(
        count, " of ", data.chats + data.captions, " samples looked at have ",
        std::string(MediumName(medium)), " items, which the processor does not encode",
        why.ok() ? absl::StrCat(" (", folder, ")") : absl::StrCat(" (", std::string(why.message()), ")"));
    if (static_cast<double>(count) > kMaxShareWithout * usable) {
      return absl::Status(
          absl::IsNotFound(why) ? absl::StatusCode::kNotFound : absl::StatusCode::kInvalidArgument,
          absl::StrCat(
              what,
              "; give the folder of a checkpoint for these media, or data without them. Where transformers "
              "has the processor, a job can use it: processor.python in docs/preprocess.md"));
    }
    out.warnings.push_back(absl::StrCat(what, "; the index will exclude these samples"));
  }
  return out;
}

// A path as the job in `folder` has it: absolute paths stay, others become relative to the folder.
std::string InJob(const std::string& path, const fs::path& folder) {
  std::error_code error;
  const fs::path given(path);
  if (given.is_absolute()) return path;
  const fs::path relative = fs::proximate(fs::absolute(given), fs::absolute(folder), error);
  if (error || relative.empty()) return fs::absolute(given).string();
  const std::string text = relative.string();
  return text[0] == '.' ? text : absl::StrCat("./", text);
}

// A component of a path without what a name must not contain.
std::string AsName(const fs::path& component) {
  const bool is_file = component.extension() == ".tar" || component.extension() == ".yaml";
  std::string name = is_file ? component.stem().string() : component.string();
  for (char& c : name) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '-' || c == '_' || c == '.';
    if (!kept) c = '-';
  }
  return name == "." ? "" : name;
}

fs::path Whole(const std::string& path) {
  std::error_code error;
  fs::path whole = fs::weakly_canonical(path, error);
  if (error) return path;
  return whole.has_filename() ? whole : whole.parent_path();
}

// The name of a job or dataset: the last component of the path.
std::string NameOf(const std::string& path) {
  const std::string name = AsName(Whole(path).filename());
  return name.empty() ? "data" : name;
}

// Names of datasets: of those with one name, the folders around them make the difference, else a number.
std::vector<std::string> UniqueNames(const std::vector<FoundDataset>& datasets) {
  std::map<std::string, int> count;
  for (const FoundDataset& dataset : datasets) ++count[NameOf(dataset.path)];
  std::vector<std::string> names;
  std::set<std::string> taken;
  for (const FoundDataset& dataset : datasets) {
    std::string name = NameOf(dataset.path);
    const std::string around = AsName(Whole(dataset.path).parent_path().filename());
    if (count[name] > 1 && !around.empty()) name = absl::StrCat(around, "-", name);
    const std::string first = name;
    for (int number = 2; !taken.insert(name).second; ++number) name = absl::StrCat(first, "-", number);
    names.push_back(name);
  }
  return names;
}

// Lines of a comment with the given indent; texts come from file names and messages and have no line breaks.
std::string Comment(std::string_view text, size_t indent) {
  constexpr size_t kWidth = 100;
  const std::string margin(indent, ' ');
  std::string out, line;
  for (absl::string_view word : absl::StrSplit(absl::string_view(text.data(), text.size()), ' ')) {
    if (!line.empty() && indent + line.size() + word.size() > kWidth) {
      absl::StrAppend(&out, margin, "#", line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, " ", word);
  }
  return absl::StrCat(out, margin, "#", line, "\n");
}

class Draft {
 public:
  Draft(const FoundData& data, const JobWishes& wishes)
      : data_(data), wishes_(wishes), folder_(fs::path(wishes.job).parent_path()) {
    if (folder_.empty()) folder_ = ".";
  }

  absl::Status Choose() {
    std::error_code error;
    if (!fs::is_directory(wishes_.processor, error)) {
      return absl::NotFoundError(absl::StrCat(wishes_.processor,
                                              ": no such folder; --processor is a checkpoint's folder with "
                                              "preprocessor_config.json and tokenizer.json"));
    }
    EVENKEEL_ASSIGN_OR_RETURN(const std::vector<uint32_t> ranks, ParseRanks(wishes_.ranks));
    num_ranks_ = ranks.size();
    EVENKEEL_ASSIGN_OR_RETURN(encoders_, ChooseEncoders(data_, wishes_.processor));
    for (const FoundDataset& dataset : data_.datasets) {
      if (!dataset.list.empty()) {
        patterns_.push_back({InJob(dataset.list, folder_)});
        continue;
      }
      std::vector<std::string> shards;
      for (const std::string& shard : dataset.shards) shards.push_back(InJob(shard, folder_));
      EVENKEEL_ASSIGN_OR_RETURN(patterns_.emplace_back(), ShardPatterns(shards));
    }
    samples_ = wishes_.samples != 0 ? wishes_.samples : kSamplesOfARank * num_ranks_;
    // A text without turns needs no template, and base models have none.
    chat_ = !wishes_.chat.empty() ? wishes_.chat : data_.chats == 0 ? "plain" : "";
    return absl::OkStatus();
  }

  JobDraft Write() {
    const std::string name = NameOf(wishes_.data);
    Line("# The job of a stream, written by `evenkeel init`. docs/job.md has every key.");
    Add("name", Quoted(name), "the name of the data; a label of logs and metrics", 0);
    Add("seed", "0", "another seed gives another order of the samples", 0);
    Add("index", "./index",
        "a folder for the index, next to this file; `evenkeel index` or the first Loader makes it", 0);
    Datasets();
    Processor();
    Add("batch", absl::StrCat("{samples: ", samples_, "}"),
        wishes_.samples != 0 ? "samples of a step, over all ranks, as asked for"
                             : absl::StrCat("samples of a step, over all ranks: ", kSamplesOfARank,
                                            " for each; set it to your global batch"),
        0);
    Add("balance", "drop_in",
        "the model encodes its media in its own forward, as those of transformers do: items stay with their "
        "sample, and samples are "
        "placed with the costs of all phases considered",
        0);
    Phases();
    Exclude();
    Line(Comment("A bound on the tokens that a rank runs at once; a step then takes several microbatches:",
                 0));
    Line("# microbatch: {capacity_tokens: 16384}");
    JobDraft out;
    out.yaml = absl::StrReplaceAll(yaml_, {{"\n\n", "\n"}});
    out.reasons = reasons_;
    return out;
  }

 private:
  void Line(std::string_view line) { absl::StrAppend(&yaml_, std::string(line), "\n"); }
  void Add(std::string_view key, const std::string& value, const std::string& why, size_t indent) {
    absl::StrAppend(&yaml_, Comment(why, indent), std::string(indent, ' '), std::string(key), ": ", value,
                    "\n");
    reasons_.emplace_back(absl::StrCat(std::string(key), ": ", value), why);
  }

  void Datasets() {
    names_ = UniqueNames(data_.datasets);
    Line("datasets:");
    for (size_t i = 0; i < names_.size(); ++i) Dataset(data_.datasets[i], names_[i], patterns_[i]);
    if (names_.size() > kReasons)
      reasons_.emplace_back(absl::StrCat("datasets: ", names_.size() - kReasons, " more"), "in the job");
    if (data_.datasets[0].format == DataFormat::kParquet && encoders_.vision)
      reasons_.emplace_back(
          "processor.exif_orientation: apply",
          "the default for Parquet: `datasets` turns pictures upright when it decodes them");
  }

  void Dataset(const FoundDataset& dataset, const std::string& name,
               const std::vector<std::string>& patterns) {
    std::vector<std::string> notes = dataset.notes;
    if (notes.empty())
      notes.push_back(absl::StrCat(dataset.shards.size(), " shards in the order of their ",
                                   dataset.list.empty() ? "names" : "list"));
    Line(absl::StrCat("  - name: ", Quoted(name)));
    for (const std::string& note : notes) absl::StrAppend(&yaml_, Comment(note, 4));
    if (!dataset.weight.empty()) Line(absl::StrCat("    weight: ", dataset.weight));
    if (!dataset.repeat.empty()) Line(absl::StrCat("    repeat: ", dataset.repeat));
    Line("    shards:");
    for (const std::string& pattern : patterns) Line(absl::StrCat("      - ", Quoted(pattern)));
    if (!dataset.media.empty()) {
      const std::string media = Quoted(InJob(dataset.media, folder_));
      const std::string why = "the folder that the rows' media are in";
      Line(absl::StrCat(Comment(why, 4), "    media: ", media));
      reasons_.emplace_back(absl::StrCat("media: ", media), why);
    }
    if (&dataset - data_.datasets.data() >= static_cast<std::ptrdiff_t>(kReasons)) return;
    reasons_.emplace_back(
        absl::StrCat(
            "datasets: ", patterns.size() == 1 ? patterns[0] : absl::StrCat(patterns.size(), " files"),
            dataset.weight.empty() ? "" : absl::StrCat(", weight ", dataset.weight),
            dataset.repeat.empty() ? "" : absl::StrCat(", repeat ", dataset.repeat)),
        absl::StrJoin(notes, "; "));
  }

  void Exclude() {
    uint64_t count = 0;
    for (const FoundDataset& dataset : data_.datasets) count += dataset.exclude.size();
    if (count == 0) return;
    const std::string why = "the samples that Energon's data exclude";
    Line(absl::StrCat(Comment(why, 0), "exclude:"));
    for (size_t i = 0; i < names_.size(); ++i) {
      for (const std::string& sample : data_.datasets[i].exclude)
        Line(absl::StrCat("  - ", Quoted(absl::StrCat(names_[i], "/", sample))));
    }
    reasons_.emplace_back(absl::StrCat("exclude: ", count, " samples"), why);
  }

  void Processor() {
    Line("processor:");
    Add("folder", Quoted(InJob(wishes_.processor, folder_)),
        "the checkpoint, whose own processor and tokenizer are followed", 2);
    if (chat_.empty()) {
      const std::string why =
          "not set, so turns are written by the checkpoint's own chat template, and the assistant's are "
          "trained";
      Line(Comment(absl::StrCat("chat: ", why), 2));
      reasons_.emplace_back("processor.chat", why);
    } else {
      Add("chat", chat_,
          !wishes_.chat.empty() ? "as asked for"
                                : "no sample looked at has turns: texts stand as they are, end with the end "
                                  "of the text, and are trained whole",
          2);
    }
    if (!wishes_.date.empty())
      Add("date", wishes_.date, "the day that the chat template writes, as asked for", 2);
    if (encoders_.vision)
      Line(
          "  # max_pixels: 200704 bounds the pixels of an image, and so its tokens; without it the "
          "checkpoint's bound");
  }

  void Phases() {
    std::vector<std::string> media;
    for (Medium medium : kItemMedia) {
      if (With(data_, medium) > 0) media.emplace_back(MediumName(medium));
    }
    const std::string why = absl::StrCat(
        "ranks ", wishes_.ranks, " run the llm",
        encoders_.vision || encoders_.audio ? " and the encoders" : "",
        media.empty() ? "; the samples looked at are text alone"
                      : absl::StrCat("; the samples looked at have ", absl::StrJoin(media, ", ")),
        ". For several GPUs give a range: 0-7");
    std::vector<std::string> names = {"llm"};
    if (encoders_.vision) names.emplace_back("vision");
    if (encoders_.audio) names.emplace_back("audio");
    std::map<std::string, Cost> costs = ModelCosts(wishes_.processor);
    // Costs of some phases alone would be in another unit than the defaults of the others.
    if (!std::all_of(names.begin(), names.end(), [&](const auto& name) { return costs.contains(name); }))
      costs.clear();
    const char* const of_costs = costs.empty()
                                     ? "no cost is set, so a unit costs its length: config.json does not "
                                       "have the sizes of all phases. "
                                       "With long sequences give the llm a quadratic cost, too"
                                     : "10^9 operations of a forward pass by the sizes in config.json";
    Line(absl::StrCat(Comment(why, 0), Comment(absl::StrCat("cost: ", of_costs), 0), "phases:"));
    for (const std::string& name : names)
      Line(absl::StrCat("  - {name: ", name, ", ranks: \"", wishes_.ranks, "\"", CostOf(costs, name), "}"));
    reasons_.emplace_back(absl::StrCat("phases: ", absl::StrJoin(names, ", ")), why);
    reasons_.emplace_back("phases[].cost", of_costs);
    for (const std::string& warning : encoders_.warnings) reasons_.emplace_back("warning", warning);
  }

  static std::string CostOf(const std::map<std::string, Cost>& costs, const std::string& name) {
    const auto it = costs.find(name);
    if (it == costs.end()) return "";
    std::string cost = absl::StrFormat("linear: %.4g", it->second.linear);
    if (it->second.quadratic > 0) absl::StrAppendFormat(&cost, ", quadratic: %.4g", it->second.quadratic);
    return absl::StrCat(", cost: {", cost, "}");
  }

  const FoundData& data_;
  const JobWishes& wishes_;
  fs::path folder_;
  Encoders encoders_;
  std::vector<std::vector<std::string>> patterns_;  // of each dataset
  std::vector<std::string> names_;                  // of the datasets
  std::string chat_;
  uint64_t samples_ = 0;
  uint64_t num_ranks_ = 1;
  std::string yaml_;
  std::vector<std::pair<std::string, std::string>> reasons_;
};

// Loads what the other commands load.
absl::Status Try(const JobDraft& draft, const FoundData& data, const JobWishes& wishes) {
  EVENKEEL_ASSIGN_OR_RETURN(const Job job, ParseJob(draft.yaml, wishes.job));
  EVENKEEL_RETURN_IF_ERROR(preprocess::CheckJob(job));
  absl::Status loaded = preprocess::Processor::Load(job.processor, job.limits).status();
  if (!loaded.ok() && data.chats > 0 && wishes.chat.empty()) {
    return AddContext(
        loaded,
        absl::StrCat(
            data.chats,
            " of the samples looked at are chats, which `evenkeel init` leaves to the "
            "checkpoint's template (--chat names a style instead, --date the day that a template writes)"));
  }
  return loaded;
}

}  // namespace

absl::StatusOr<JobDraft> DraftJob(const FoundData& data, const JobWishes& wishes) {
  Draft draft(data, wishes);
  EVENKEEL_RETURN_IF_ERROR(draft.Choose());
  JobDraft out = draft.Write();
  EVENKEEL_RETURN_IF_ERROR(Try(out, data, wishes));
  return out;
}

}  // namespace evenkeel::cli
