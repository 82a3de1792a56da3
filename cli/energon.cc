// Follows the references of a metadataset to its folders, and reads the split of each.
#include "cli/energon.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/energon_fields.h"
#include "cli/energon_folder.h"
#include "cli/yaml_file.h"
#include "core/job_syntax.h"
#include "core/status.h"
#include "core/utf8.h"

namespace evenkeel::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kMetadataset[] = ".yaml";

// A folder of a metadataset.
struct Leaf {
  std::string path;
  std::string where;  // of the reference: "blend.yaml:7"; empty: the user gave the folder
  std::string split;
  std::string split_config;
  std::string dataset_config;
  double share = 1;  // its weight or its repetitions
};

// What the shares of leaves are. Energon does not mix the last two, and neither is there a job for that.
enum class Shares { kNone, kWeights, kRepetitions };

struct Blend {
  Shares shares = Shares::kNone;
  std::vector<Leaf> leaves;
};

class Metadatasets {
 public:
  Metadatasets(std::string split, bool as_tars) : split_(std::move(split)), as_tars_(as_tars) {}

  absl::StatusOr<Blend> Read(const std::string& path) { return ReadFile(path, split_); }

 private:
  absl::StatusOr<Blend> ReadFile(const std::string& path, const std::string& split) {
    std::error_code error;
    fs::path canonical = fs::weakly_canonical(path, error);
    if (error) canonical = path;
    if (std::find(open_.begin(), open_.end(), canonical.string()) != open_.end())
      return absl::InvalidArgumentError(
          absl::StrCat(Printable(path), ": a metadataset that contains itself: ",
                       Printable(absl::StrJoin(open_, " -> "), 1000), " -> ", Printable(canonical.string())));
    if (open_.size() == kMaxMetadatasetDepth)
      return absl::InvalidArgumentError(
          absl::StrCat(Printable(path), ": metadatasets are nested deeper than ", kMaxMetadatasetDepth));
    EVENKEEL_ASSIGN_OR_RETURN(const YamlFile file, YamlFile::Read(path));
    open_.push_back(canonical.string());
    absl::StatusOr<Blend> blend = Splits(file, split);
    open_.pop_back();
    return blend;
  }

  absl::StatusOr<Blend> Splits(const YamlFile& file, const std::string& split) {
    EVENKEEL_RETURN_IF_ERROR(
        AddContext(file.CheckMap(file.root, "the metadataset", {"__module__", "__class__", "splits"}),
                   "taken for a metadataset of Energon, as any .yaml"));
    const YamlNode* name = Find(file.root, "__class__");
    const std::string version = name == nullptr ? "Metadataset" : name->scalar;
    if (version != "Metadataset" && version != "MetadatasetV2")
      return file.Error(name->line, absl::StrCat("__class__: '", ShortText(version),
                                                 "' is not one of Metadataset, MetadatasetV2"));
    const YamlNode* splits = Find(file.root, "splits");
    if (splits == nullptr || splits->kind != YamlNode::Kind::kMap)
      return file.Error(file.root.line, "no map 'splits'");
    const YamlNode* node = Find(*splits, split);
    if (node == nullptr) {
      std::vector<std::string> names;
      for (const std::string& known : splits->keys) names.push_back(ShortText(known));
      return file.Error(splits->line, absl::StrCat("no split '", ShortText(split), "'; there are: ",
                                                   absl::StrJoin(names, ", "), " (--split)"));
    }
    if (version == "Metadataset") {
      EVENKEEL_RETURN_IF_ERROR(file.CheckMap(*node, absl::StrCat("split ", ShortText(split)), {"datasets"}));
      return Blended(file, *node, "datasets", split, Shares::kWeights);
    }
    return Split(file, *node, split);
  }

  // One dataset, or one of the kinds of blends.
  absl::StatusOr<Blend> Split(const YamlFile& file, const YamlNode& node, const std::string& split) {
    const std::string what = absl::StrCat("split ", ShortText(split));
    if (node.kind != YamlNode::Kind::kMap)
      return file.Error(node.line, absl::StrCat(what, ": a map is expected"));
    EVENKEEL_RETURN_IF_ERROR(Expressible(file, node));
    for (const auto& [key, shares] :
         {std::pair{"blend", Shares::kWeights}, std::pair{"blend_epochized", Shares::kRepetitions}}) {
      if (Find(node, key) == nullptr) continue;
      EVENKEEL_RETURN_IF_ERROR(file.CheckMap(node, what, {key}));
      return Blended(file, node, key, split, shares);
    }
    return Reference(file, node, split, /*share=*/nullptr);
  }

  // Refuses what no job expresses.
  static absl::Status Expressible(const YamlFile& file, const YamlNode& node) {
    if (const YamlNode* join = Find(node, "join"); join != nullptr)
      return file.Error(join->line,
                        "join: samples of several folders are joined in Python, which `evenkeel init` does "
                        "not run; write the "
                        "joined samples as tar shards with a short script");
    if (const YamlNode* subset = Find(node, "subset"); subset != nullptr)
      return file.Error(subset->line,
                        "subset: a job has all samples of its shards; give the shards of the range as a "
                        "split of split.yaml, and "
                        "leave out single samples by its `exclude`");
    return absl::OkStatus();
  }

  // The list `key` of `node`. The shares of leaves in nested metadatasets are multiplied by that of the reference.
  absl::StatusOr<Blend> Blended(const YamlFile& file, const YamlNode& node, const char* key,
                                const std::string& split, Shares shares) {
    const YamlNode* list = Find(node, key);
    if (list == nullptr || list->kind != YamlNode::Kind::kList || list->values.empty())
      return file.Error(node.line, absl::StrCat(key, ": a list of datasets is expected"));
    const char* const share_key = shares == Shares::kWeights ? "weight" : "repetitions";
    Blend out{shares, {}};
    for (const YamlNode& value : list->values) {
      if (value.kind != YamlNode::Kind::kMap)
        return file.Error(value.line, absl::StrCat(key, ": a map with 'path' is expected"));
      EVENKEEL_RETURN_IF_ERROR(Expressible(file, value));
      double share = 1;
      if (const YamlNode* given = Find(value, share_key); given != nullptr) {
        const std::optional<double> number = NumberOf(*given);
        if (!number || *number < 0)
          return file.Error(given->line, absl::StrCat(share_key, ": '", ShortText(given->scalar),
                                                      "' is not a number of at least 0"));
        share = *number;
      }
      EVENKEEL_ASSIGN_OR_RETURN(Blend inner, Reference(file, value, split, share_key));
      if (inner.shares != Shares::kNone && inner.shares != shares)
        return file.Error(
            value.line,
            "a blend by weights and one by repetitions (blend_epochized) in one another have no common "
            "shares, in Energon neither");
      double sum = 1;
      if (shares == Shares::kWeights)
        sum = std::accumulate(inner.leaves.begin(), inner.leaves.end(), 0.0,
                              [](double all, const Leaf& leaf) { return all + leaf.share; });
      if (sum <= 0) return file.Error(value.line, "all weights of the nested metadataset are 0");
      for (Leaf& leaf : inner.leaves) {
        leaf.share *= share / sum;
        out.leaves.push_back(std::move(leaf));
      }
    }
    return out;
  }

  // A map with `path`: a folder, or a metadataset whose leaves are returned.
  absl::StatusOr<Blend> Reference(const YamlFile& file, const YamlNode& node, const std::string& split,
                                  const char* share_key) {
    std::vector<std::string> known = {
        "path",           "split_part",   "subflavors", "subflavor", "shuffle_over_epochs_multiplier",
        "dataset_config", "split_config", "aux"};
    if (share_key != nullptr) known.emplace_back(share_key);
    EVENKEEL_RETURN_IF_ERROR(file.CheckMap(node, "the dataset", known));
    if (++references_ > kMaxReferences)
      return file.Error(node.line, absl::StrCat("more than ", kMaxReferences, " datasets"));
    Leaf leaf{.where = absl::StrCat(file.path, ":", node.line), .split = split};
    const std::pair<const char*, std::string*> texts[] = {{"path", &leaf.path},
                                                          {"split_part", &leaf.split},
                                                          {"split_config", &leaf.split_config},
                                                          {"dataset_config", &leaf.dataset_config}};
    for (const auto& [key, text] : texts) {
      const YamlNode* value = Find(node, key);
      if (value == nullptr && text == &leaf.path) return file.Error(node.line, "the dataset has no 'path'");
      if (value == nullptr || value->kind == YamlNode::Kind::kNull) continue;
      EVENKEEL_ASSIGN_OR_RETURN(*text, file.Text(*value, key));
    }
    if (const YamlNode* aux = Find(node, "aux"); aux != nullptr && !as_tars_)
      return file.Error(aux->line,
                        "aux: files of other folders are read by a cooker, which is Python of the trainer; "
                        "--as-tars writes "
                        "a job for the members of this folder alone");
    EVENKEEL_ASSIGN_OR_RETURN(leaf.path, Resolve(file, node.line, leaf.path));
    if (!absl::EndsWith(leaf.path, kMetadataset)) return Blend{Shares::kNone, {std::move(leaf)}};
    if (!leaf.split_config.empty() || !leaf.dataset_config.empty())
      return file.Error(node.line,
                        "split_config and dataset_config belong to folders, and the path is a metadataset");
    absl::StatusOr<Blend> nested = ReadFile(leaf.path, leaf.split);
    if (!nested.ok()) return AddContext(nested.status(), leaf.where);
    return nested;
  }

  // The path of a reference, relative to the folder of its metadataset.
  static absl::StatusOr<std::string> Resolve(const YamlFile& file, int line, std::string path) {
    if (absl::StartsWith(path, "file:///")) path = path.substr(7);
    if (const size_t colon = path.find("://"); colon != std::string::npos) {
      return file.Error(
          line, absl::StrCat(
                    "path: '", ShortText(path),
                    "': `evenkeel init` reads data of this machine. Jobs have objects as "
                    "s3://bucket/key, gs://bucket/key and az://container/blob (docs/datasets.md): ",
                    path.substr(0, colon) == "msc"
                        ? "look up the bucket of the multi-storage client's profile, and "
                        : "",
                    "write `datasets` by hand, or run this on a copy of .nv-meta and the shards and change "
                    "the paths in the job"));
    }
    const fs::path resolved = (fs::path(file.path).parent_path() / path).lexically_normal();
    std::error_code error;
    if (fs::exists(resolved, error)) return resolved.string();
    return absl::NotFoundError(absl::StrCat(file.path, ":", line, ": path: ", Printable(resolved.string()),
                                            ": no such folder or metadataset"));
  }

  const std::string split_;
  const bool as_tars_;
  std::vector<std::string> open_;  // metadatasets around the one that is read, outermost first
  size_t references_ = 0;
};

// The dataset of a leaf, without its weight.
absl::StatusOr<FoundDataset> Load(const Leaf& leaf, bool as_tars, uint64_t& samples) {
  if (absl::EndsWith(leaf.path, ".jsonl"))
    return absl::InvalidArgumentError(
        absl::StrCat(Printable(leaf.path),
                     ": samples of JSON lines are made by a cooker, which is Python of the trainer; "
                     "`evenkeel init` on the file itself reads its rows as they are (docs/datasets.md)"));
  if (!IsEnergonFolder(leaf.path)) {
    return absl::InvalidArgumentError(absl::StrCat(Printable(leaf.path), ": no folder with ", kEnergonNotes,
                                                   ", which `energon prepare` writes"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(EnergonSplit split, ReadEnergonSplit(leaf.path, leaf.split, leaf.split_config));
  samples = split.samples;
  FoundDataset out;
  out.path = leaf.path;
  out.notes.push_back(absl::StrFormat("split '%s' of %s: %d shards in its order", Printable(leaf.split),
                                      Printable(split.file), split.shards.size()));
  out.shards = std::move(split.shards);
  out.exclude = std::move(split.exclude);
  if (as_tars) {
    out.notes.emplace_back("members are read as they are, by --as-tars, and dataset.yaml is not");
    return out;
  }
  const std::string config = leaf.dataset_config.empty() ? "dataset.yaml" : leaf.dataset_config;
  if (config.find('/') != std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat(
        "dataset_config '", ShortText(config), "': the name of a file in ", kEnergonNotes, " is expected"));
  EVENKEEL_ASSIGN_OR_RETURN(out.energon,
                            ReadEnergonFields((fs::path(leaf.path) / kEnergonNotes / config).string()));
  out.notes.push_back(absl::StrCat("Energon's ", out.energon->sample_class, " (",
                                   Printable(out.energon->field_map),
                                   "); the samples looked at have the same content here"));
  return out;
}

}  // namespace

bool IsEnergon(const std::string& path) {
  std::error_code error;
  return IsEnergonFolder(path) || (absl::EndsWith(path, kMetadataset) && fs::is_regular_file(path, error));
}

absl::StatusOr<std::vector<FoundDataset>> EnergonDatasets(const std::string& path,
                                                          const EnergonWishes& wishes) {
  const std::string split = wishes.split.empty() ? "train" : wishes.split;
  Blend blend{Shares::kNone, {Leaf{.path = path, .split = split}}};
  if (!IsEnergonFolder(path)) {
    EVENKEEL_ASSIGN_OR_RETURN(blend, Metadatasets(split, wishes.as_tars).Read(path));
  }
  std::vector<FoundDataset> out;
  for (const Leaf& leaf : blend.leaves) {
    uint64_t samples = 0;
    absl::StatusOr<FoundDataset> dataset = Load(leaf, wishes.as_tars, samples);
    if (!dataset.ok() && leaf.where.empty()) return dataset.status();
    if (!dataset.ok()) return AddContext(dataset.status(), leaf.where);
    if (blend.shares == Shares::kWeights) dataset->weight = absl::StrFormat("%.10g", leaf.share);
    if (blend.shares == Shares::kRepetitions) {
      dataset->repeat = absl::StrFormat("%.10g", leaf.share);
      dataset->notes.push_back(absl::StrFormat("repeat: the repetitions of its %d samples", samples));
    }
    out.push_back(*std::move(dataset));
  }
  if (blend.shares != Shares::kNone &&
      std::all_of(blend.leaves.begin(), blend.leaves.end(), [](const Leaf& leaf) { return leaf.share == 0; }))
    return absl::InvalidArgumentError(absl::StrCat(path, ": every weight is 0"));
  return out;
}

}  // namespace evenkeel::cli
