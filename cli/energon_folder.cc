// Reads .info.json or .info.yaml and split.yaml, and combines them as Energon's own loader does.
#include "cli/energon_folder.h"

#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/braces.h"
#include "cli/yaml_file.h"
#include "core/job_syntax.h"
#include "core/read_file.h"
#include "core/status.h"
#include "core/utf8.h"
#include "dataset/format/json.h"

namespace evenkeel::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxInfoBytes = 64 << 20;
constexpr uint64_t kMaxSamples = 1ull << 40;  // of a shard
constexpr size_t kListed = 12;                // names in a message
constexpr char kPrepare[] = "`energon prepare` writes it again";

// Samples of each shard.
using Counts = std::unordered_map<std::string, uint64_t>;

std::string Note(const std::string& folder, absl::string_view name) {
  return (fs::path(folder) / kEnergonNotes / std::string(name)).string();
}

absl::Status AddCount(const std::string& where, std::string_view name, absl::string_view count,
                      Counts& counts) {
  uint64_t samples = 0;
  if (!absl::SimpleAtoi(count, &samples) || samples > kMaxSamples) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": shard_counts: '", ShortText(name), "' has '",
                                                   ShortText({count.data(), count.size()}),
                                                   "' samples, a whole number is expected"));
  }
  if (counts.size() == kMaxShards)
    return absl::InvalidArgumentError(absl::StrCat(where, ": more than ", kMaxShards, " shards"));
  if (!counts.emplace(name, samples).second)
    return absl::InvalidArgumentError(absl::StrCat(where, ": shard '", ShortText(name), "' is given twice"));
  return absl::OkStatus();
}

absl::StatusOr<Counts> CountsOfJson(const std::string& path, const std::string& text) {
  dataset::JsonDocument document;
  const absl::StatusOr<const dataset::JsonValue*> root = document.Parse(text, /*max_depth=*/8);
  if (!root.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cut off or damaged: ", root.status().message(), "; ", kPrepare));
  }
  const dataset::JsonValue* list = (*root)->is_object() ? (*root)->Find("shard_counts") : nullptr;
  if (list == nullptr || !list->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no map 'shard_counts' of shards to their numbers of samples; ", kPrepare));
  }
  for (const dataset::JsonValue& member : (*root)->values()) {
    if (member.key == "shard_counts" || member.key == "energon_version") continue;
    return absl::InvalidArgumentError(absl::StrCat(path, ": unknown key '", ShortText(member.key), "'"));
  }
  Counts counts;
  for (const dataset::JsonValue& shard : list->values()) {
    const std::string_view count = shard.kind == dataset::JsonValue::Kind::kNumber ? shard.text : "";
    EVENKEEL_RETURN_IF_ERROR(AddCount(path, shard.key, {count.data(), count.size()}, counts));
  }
  return counts;
}

// The form that older releases wrote: a line `shard_counts:`, below it indented lines `name: number`. It may have more keys than
// ParseYaml accepts in a map.
absl::StatusOr<Counts> CountsOfYaml(const std::string& path, const std::string& text) {
  Counts counts;
  bool is_inside = false, found = false;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::string where = absl::StrCat(path, ":", ++number);
    line = absl::StripTrailingAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const size_t colon = line.rfind(": ");
    if (line[0] != ' ') {
      is_inside = line == "shard_counts:";
      if (!is_inside && !absl::StartsWith(line, "energon_version:"))
        return absl::InvalidArgumentError(
            absl::StrCat(where, ": '", ShortText({line.data(), line.size()}),
                         "': energon_version or shard_counts is expected, a shard a line below it"));
      found = found || is_inside;
      continue;
    }
    if (!is_inside || colon == absl::string_view::npos)
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": a line `shard name: number of samples` is expected; ", kPrepare));
    absl::string_view name = absl::StripAsciiWhitespace(line.substr(0, colon));
    for (const char* quote : {"'", "\""})
      if (name.size() > 1 && absl::StartsWith(name, quote) && absl::EndsWith(name, quote))
        name = name.substr(1, name.size() - 2);
    EVENKEEL_RETURN_IF_ERROR(AddCount(where, {name.data(), name.size()}, line.substr(colon + 2), counts));
  }
  if (!found) return absl::InvalidArgumentError(absl::StrCat(path, ": no 'shard_counts'; ", kPrepare));
  return counts;
}

absl::StatusOr<Counts> ReadCounts(const std::string& folder) {
  for (const bool is_json : {true, false}) {
    const std::string path = Note(folder, is_json ? ".info.json" : ".info.yaml");
    const absl::StatusOr<std::string> text = ReadAtMost(path, kMaxInfoBytes + 1);
    if (!text.ok()) continue;
    if (text->size() > kMaxInfoBytes)
      return absl::InvalidArgumentError(absl::StrCat(path, ": more than ", kMaxInfoBytes, " bytes"));
    return is_json ? CountsOfJson(path, *text) : CountsOfYaml(path, *text);
  }
  return absl::NotFoundError(absl::StrCat(
      Note(folder, ".info.json"),
      ": no such file, nor .info.yaml; Energon's data have one: `energon prepare ", Printable(folder),
      "` writes it. Without Energon give the folder without ", kEnergonNotes));
}

absl::StatusOr<YamlFile> ReadSplits(const std::string& folder, const std::string& config) {
  if (config.find('/') != std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat(
        "split_config '", ShortText(config), "': the name of a file in ", kEnergonNotes, " is expected"));
  absl::StatusOr<YamlFile> file = YamlFile::Read(Note(folder, config.empty() ? "split.yaml" : config));
  if (absl::IsNotFound(file.status()) && config.empty()) {
    absl::StatusOr<YamlFile> json = YamlFile::Read(Note(folder, "split.json"));
    if (!absl::IsNotFound(json.status())) return json;
  }
  return file;
}

// Texts with braces, expanded.
absl::StatusOr<std::vector<std::string>> Expanded(const YamlFile& file, const YamlNode& list,
                                                  absl::string_view what) {
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<std::string> patterns, file.Texts(list, what));
  std::vector<std::string> out;
  uint64_t bytes = 0;
  for (size_t i = 0; i < patterns.size(); ++i) {
    absl::StatusOr<std::vector<std::string>> names = ExpandBraces(patterns[i], kMaxShards - out.size());
    if (!names.ok())
      return file.Error(list.values[i].line, absl::StrCat(what, ": ", names.status().message()));
    for (std::string& name : *names) {
      if ((bytes += name.size()) > kMaxShardPathBytes)
        return file.Error(list.values[i].line,
                          absl::StrCat(what, ": names of more than ", kMaxShardPathBytes, " bytes"));
      out.push_back(std::move(name));
    }
  }
  return out;
}

// Whether a name stays in the folder.
bool IsInside(const std::string& name) {
  const fs::path path(name);
  if (name.empty() || path.is_absolute() || name.find('\n') != std::string::npos) return false;
  for (const fs::path& part : path)
    if (part == "..") return false;
  return true;
}

class SplitReader {
 public:
  SplitReader(const std::string& folder, YamlFile file, Counts counts)
      : folder_(folder), file_(std::move(file)), counts_(std::move(counts)) {
    out_.file = file_.path;
  }

  absl::StatusOr<EnergonSplit> Read(const std::string& split) {
    EVENKEEL_RETURN_IF_ERROR(file_.CheckMap(file_.root, "the file", {"split_parts", "exclude"}));
    EVENKEEL_ASSIGN_OR_RETURN(const YamlNode* parts, Part(split));
    EVENKEEL_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                              Expanded(file_, *parts, absl::StrCat("split_parts: ", ShortText(split))));
    std::vector<std::string> exclude;
    if (const YamlNode* list = Find(file_.root, "exclude"); list != nullptr) {
      EVENKEEL_ASSIGN_OR_RETURN(exclude, Expanded(file_, *list, "exclude"));
    }
    const std::unordered_set<std::string> without(exclude.begin(), exclude.end());
    for (const std::string& name : names) {
      if (without.count(name) > 0) continue;
      EVENKEEL_RETURN_IF_ERROR(AddShard(name, split, parts->line));
    }
    if (out_.shards.empty())
      return file_.Error(parts->line, absl::StrCat("split '", ShortText(split), "' has no shards",
                                                   names.empty() ? "" : ", since `exclude` has all of them"));
    EVENKEEL_RETURN_IF_ERROR(CheckFiles(split));
    EVENKEEL_RETURN_IF_ERROR(ExcludeSamples(without));
    return std::move(out_);
  }

 private:
  absl::StatusOr<const YamlNode*> Part(const std::string& split) const {
    const YamlNode* parts = Find(file_.root, "split_parts");
    if (parts == nullptr || parts->kind != YamlNode::Kind::kMap)
      return file_.Error(file_.root.line, "no map 'split_parts' of splits to their shards");
    const YamlNode* part = Find(*parts, split);
    if (part != nullptr) return part;
    std::vector<std::string> names;
    for (const std::string& name : parts->keys)
      if (names.size() < kListed) names.push_back(ShortText(name));
    return file_.Error(parts->line, absl::StrCat("no split '", ShortText(split),
                                                 "'; there are: ", absl::StrJoin(names, ", "), " (--split)"));
  }

  absl::Status AddShard(const std::string& name, const std::string& split, int line) {
    const std::string what = absl::StrCat("split '", ShortText(split), "': shard '", Printable(name), "'");
    if (!IsInside(name)) return file_.Error(line, absl::StrCat(what, " is not a name below ", folder_));
    const auto count = counts_.find(name);
    if (count == counts_.end())
      return file_.Error(line, absl::StrCat(what, " is not one of the ", counts_.size(),
                                            " shards of .info.json; ", kPrepare));
    if (!selected_.insert(name).second)
      return file_.Error(line, absl::StrCat(what, " is listed twice; a job has a shard once, and a weight"));
    out_.shards.push_back((fs::path(folder_) / name).lexically_normal().string());
    out_.samples += count->second;
    return absl::OkStatus();
  }

  absl::Status CheckFiles(const std::string& split) const {
    uint64_t missing = 0;
    std::string first;
    for (const std::string& shard : out_.shards) {
      std::error_code error;
      if (fs::is_regular_file(shard, error)) continue;
      if (missing++ == 0) first = shard;
    }
    if (missing == 0) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat(folder_, ": ", missing, " of ", out_.shards.size(),
                                            " shards of split '", ShortText(split),
                                            "' are missing; the first is ", Printable(first)));
  }

  // Entries that name a sample of a selected shard, in order of their names. Others are of other splits.
  absl::Status ExcludeSamples(const std::unordered_set<std::string>& without) {
    std::unordered_map<std::string, int> file_names;
    for (const std::string& shard : out_.shards) ++file_names[fs::path(shard).filename().string()];
    for (const std::string& entry : std::set<std::string>(without.begin(), without.end())) {
      for (size_t slash = entry.find('/'); slash != std::string::npos; slash = entry.find('/', slash + 1)) {
        if (slash + 1 == entry.size() || selected_.count(entry.substr(0, slash)) == 0) continue;
        const std::string name = fs::path(entry.substr(0, slash)).filename().string();
        if (file_names[name] > 1)
          return file_.Error(file_.root.line,
                             absl::StrCat("exclude: '", Printable(entry), "': the split has ",
                                          file_names[name], " shards named ", Printable(name),
                                          ", which a job's `exclude` does not tell apart; rename one"));
        out_.exclude.push_back(absl::StrCat(name, entry.substr(slash)));
        if (out_.samples > 0) --out_.samples;
        break;
      }
    }
    return absl::OkStatus();
  }

  const std::string folder_;
  const YamlFile file_;
  const Counts counts_;
  std::unordered_set<std::string> selected_;
  EnergonSplit out_;
};

}  // namespace

bool IsEnergonFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(fs::path(path) / kEnergonNotes, error);
}

absl::StatusOr<EnergonSplit> ReadEnergonSplit(const std::string& folder, const std::string& split,
                                              const std::string& split_config) {
  EVENKEEL_ASSIGN_OR_RETURN(Counts counts, ReadCounts(folder));
  EVENKEEL_ASSIGN_OR_RETURN(YamlFile file, ReadSplits(folder, split_config));
  return SplitReader(folder, std::move(file), std::move(counts)).Read(split);
}

}  // namespace evenkeel::cli
