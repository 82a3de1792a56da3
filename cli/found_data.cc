// Recognises what a folder contains by the names of its files, then reads headers and texts of some samples.
#include "cli/found_data.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/energon.h"
#include "core/job_syntax.h"
#include "core/packing.h"
#include "core/status.h"
#include "core/utf8.h"
#include "dataset/format/json.h"
#include "dataset/format/mds_index.h"
#include "dataset/format/media_file.h"
#include "dataset/format/megatron.h"
#include "dataset/format/sample_parser.h"
#include "dataset/format/sample_scanner.h"
#include "dataset/format/table.h"
#include "dataset/source/byte_source.h"
#include "dataset/source/unpacking_source.h"

namespace evenkeel::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxFilesListed = 1000000;
constexpr char kExpected[] =
    "expected is a folder of WebDataset shards (tar files whose members are grouped by key, for example "
    "00000042.jpg and 00000042.json), Parquet tables, MDS shards, JSON lines with media as files, texts, "
    "token files of Megatron-LM (.bin and .idx), or data of Megatron-Energon (docs/datasets.md)";

// Ends of the names of what is read, the first that a folder has.
struct Form {
  std::vector<std::string> suffixes;
  DataFormat format;
};
const std::vector<Form>& Forms() {
  static const auto* const kForms = [] {
    auto* forms =
        new std::vector<Form>{{{".tar"}, DataFormat::kWebDataset}, {{".parquet"}, DataFormat::kParquet},
                              {{".mds"}, DataFormat::kMds},        {{".jsonl", ".ndjson"}, DataFormat::kJson},
                              {{".json"}, DataFormat::kJson},      {{".txt"}, DataFormat::kText},
                              {{".bin"}, DataFormat::kMegatron}};
    for (Form& form : *forms) {
      if (form.format == DataFormat::kParquet) continue;   // compressed in itself
      if (form.format == DataFormat::kMegatron) continue;  // never compressed
      const std::vector<std::string> plain = form.suffixes;
      for (const std::string& suffix : plain)
        for (const PackedEnd& packed : kPackedEnds)
          form.suffixes.push_back(absl::StrCat(suffix, std::string(packed.end)));
      if (form.format == DataFormat::kWebDataset) form.suffixes.emplace_back(kPackedTarEnd);
    }
    return forms;
  }();
  return *kForms;
}
// Files of a format that are no data.
bool IsNote(const std::string& name) {
  for (const char* note : {"dataset_info.json", "dataset_infos.json", "state.json", "config.json",
                           "README.txt", "LICENSE.txt", "requirements.txt"})
    if (name == note) return true;
  return false;
}
bool Has(const std::string& name, const Form& form) {
  return !IsNote(name) &&
         std::any_of(form.suffixes.begin(), form.suffixes.end(),
                     [&](const std::string& suffix) { return absl::EndsWith(name, suffix); });
}
// Whether a shard has what belongs to it: .bin alone may be anything.
bool IsComplete(const std::string& path, const Form& form) {
  std::error_code ignored;
  return form.format != DataFormat::kMegatron ||
         fs::is_regular_file(dataset::MegatronIndexPath(path), ignored);
}
// Where rows may name their media from, below the folder of the shard or its parent.
constexpr std::string_view kMediaFolders[] = {"images", "media", "image", "videos", "data"};

// What files of other forms are called, by the end of their names.
struct OtherForm {
  std::string_view suffix;
  std::string_view what;
  std::string_view advice;
};
constexpr OtherForm kOtherForms[] = {
    {".tar.bz2", "compressed tar files", "decompress them (bunzip2), or compress them by gzip or zstd"},
    {".tar.xz", "compressed tar files", "decompress them (unxz), or compress them by gzip or zstd"},
    {".arrow", "a dataset saved by Hugging Face datasets",
     "write its rows as tar shards, as examples/qwen2_vl/pack.py does"},
    {".zip", "zip archives", "write their files as tar shards"},
};

std::string Counted(uint64_t count, std::string_view what) {
  return absl::StrCat(count, " ", absl::string_view(what.data(), what.size()));
}

// Names of a folder, by what they are.
struct Listed {
  std::vector<std::string> shards, folders, others;
  DataFormat format = DataFormat::kWebDataset;  // of the shards
};

absl::StatusOr<Listed> List(const std::string& folder) {
  Listed listed;
  std::error_code error;
  uint64_t count = 0;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (++count > kMaxFilesListed) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, ": more than ", kMaxFilesListed, " files; ", kExpected));
    }
    std::string name = it->path().filename().string();
    if (name.empty() || name[0] == '.') continue;
    std::error_code ignored;
    (it->is_directory(ignored) ? listed.folders : listed.others).push_back(std::move(name));
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat(folder, ": cannot be listed"));
  for (const Form& form : Forms()) {
    for (const std::string& name : listed.others)
      if (Has(name, form) && IsComplete((fs::path(folder) / name).string(), form))
        listed.shards.push_back(name);
    listed.format = form.format;
    if (!listed.shards.empty()) break;
  }
  for (auto* list : {&listed.shards, &listed.folders, &listed.others}) {
    std::sort(list->begin(), list->end(), dataset::SuffixBefore);
  }
  return listed;
}

// Why a folder without shards cannot be read.
absl::Status NotShards(const std::string& folder, const Listed& listed) {
  std::vector<std::string> with_shards;
  for (const std::string& name : listed.folders) {
    const absl::StatusOr<Listed> inner = List((fs::path(folder) / name).string());
    if (inner.ok() && !inner->shards.empty() && with_shards.size() < 5)
      with_shards.push_back(Printable(name));
  }
  if (!with_shards.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(folder, ": no shards, but there are some in ",
                                                   absl::StrJoin(with_shards, ", "),
                                                   "; give one of these folders"));
  }
  for (const OtherForm& form : kOtherForms) {
    const auto has_it = [&](const std::string& name) {
      return absl::EndsWith(name, absl::string_view(form.suffix.data(), form.suffix.size()));
    };
    const auto count =
        static_cast<uint64_t>(std::count_if(listed.others.begin(), listed.others.end(), has_it));
    if (count == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": no shards, but ", std::string(form.what), " (", count, ", the first is ",
                     Printable(*std::find_if(listed.others.begin(), listed.others.end(), has_it)),
                     "), which are not read; ", std::string(form.advice), ". In any case ", kExpected));
  }
  const auto is_medium = [](const std::string& name) {
    const size_t dot = name.rfind('.');
    return dot != std::string::npos && dataset::KindOf(name.substr(dot + 1)) == dataset::MemberKind::kMedia;
  };
  const auto media =
      static_cast<uint64_t>(std::count_if(listed.others.begin(), listed.others.end(), is_medium));
  if (media > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": ", media, " media as single files; put each with its text into a tar ",
                     "shard. In any case ", kExpected));
  }
  if (listed.others.empty() && listed.folders.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(folder, ": an empty folder; ", kExpected));
  }
  return absl::InvalidArgumentError(absl::StrCat(folder, ": no shards among ",
                                                 Counted(listed.others.size(), "files and "),
                                                 Counted(listed.folders.size(), "folders"), "; ", kExpected));
}

// Sets the shards of `out` and their format.
absl::Status FindShards(const std::string& path, FoundDataset& out) {
  if (path.find("://") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(Printable(path), ": addresses are not read; ", kExpected, " on this machine"));
  }
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    return absl::NotFoundError(absl::StrCat(path, ": no such folder; ", kExpected));
  if (error) return absl::ErrnoToStatus(error.value(), path);
  const bool is_folder = fs::is_directory(status);
  const std::string list = is_folder ? (fs::path(path) / dataset::kMdsIndexName).string() : path;
  const std::unique_ptr<dataset::ByteSource> files = dataset::MakeFileSource();
  if (fs::path(list).filename() == dataset::kMdsIndexName && dataset::IsMdsIndex(*files, list)) {
    out.format = DataFormat::kMds;
    out.list = list;
    if (!is_folder) out.path = fs::absolute(path).parent_path().string();
    EVENKEEL_ASSIGN_OR_RETURN(out.shards, dataset::MdsShards(*files, list));
    return absl::OkStatus();
  }
  if (!is_folder) {
    for (const Form& form : Forms()) {
      if (!fs::is_regular_file(status) || !Has(path, form) || !IsComplete(path, form)) continue;
      out.format = form.format;
      out.shards = {path};
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": neither a folder nor a file of a format that is read; ", kExpected));
  }
  EVENKEEL_ASSIGN_OR_RETURN(const Listed listed, List(path));
  if (listed.shards.empty()) return NotShards(path, listed);
  out.format = listed.format;
  for (const std::string& name : listed.shards) out.shards.push_back((fs::path(path) / name).string());
  return absl::OkStatus();
}

// Keys of a sample's JSON that have a meaning; the others are columns that do not reach the model.
bool HasMeaning(std::string_view key) {
  static const std::set<std::string_view>* const kKeys =
      new std::set<std::string_view>{"messages", "conversations", "system", "tools", "documents", "image",
                                     "images",   "video",         "videos", "audio", "audios"};
  return kKeys->count(key) > 0;
}

class Looker {
 public:
  Looker(const Limits& limits, FoundDataset& dataset, FoundData& out)
      : limits_(limits), source_(dataset::MakeShardSource({})), dataset_(dataset), out_(out) {}

  absl::StatusOr<uint64_t> SizeOf(const std::string& shard) { return source_->Size(shard); }

  // False: the shard has more samples than are looked at.
  absl::StatusOr<bool> LookInto(const std::string& shard) {
    const std::string content = dataset::ContentOf(shard);
    EVENKEEL_ASSIGN_OR_RETURN(const uint64_t size, source_->Size(content));
    const DatasetSpec spec{.format = dataset_.format, .media = dataset_.media};
    const std::unique_ptr<dataset::SampleScanner> scanner =
        dataset::MakeScanner(spec, *source_, content, size, limits_);
    for (uint64_t count = 0;; ++count) {
      EVENKEEL_ASSIGN_OR_RETURN(const std::optional<dataset::ScannedSample> sample, scanner->Next());
      if (!sample.has_value()) return true;
      if (count == kMaxSamplesLookedAt) return false;
      ++out_.samples;
      for (const dataset::SampleMember& member : sample->members) {
        if (!sample->is_row) ++out_.suffixes[Printable(member.suffix, 40)];
      }
      absl::Status usable =
          sample->reason.empty()
              ? (sample->is_row ? LookAtRow(shard, *sample, *scanner) : Look(*sample, *scanner))
              : absl::InvalidArgumentError(absl::StrCat(sample->reason, ": ", sample->detail));
      if (absl::IsUnavailable(usable)) return usable;
      if (absl::IsFailedPrecondition(usable))
        return absl::InvalidArgumentError(
            absl::StrCat(shard, "/", Printable(sample->key), ": ", usable.message()));
      if (usable.ok()) continue;
      const std::string reason(usable.message().substr(0, usable.message().find(": ")));
      ++out_.unusable[reason];
      out_.first_unusable.try_emplace(reason, absl::StrCat(fs::path(shard).filename().string(), "/",
                                                           Printable(sample->key), ": ", usable.message()));
    }
  }

 private:
  // The text of a member; Unavailable: it cannot be read.
  absl::StatusOr<std::string> Read(const dataset::SampleMember& member, dataset::SampleScanner& scanner) {
    const absl::StatusOr<uint64_t> size = scanner.SizeOf(member, limits_.max_text_bytes);
    if (absl::IsDataLoss(size.status()))
      return absl::InvalidArgumentError(absl::StrCat("damaged text: ", size.status().message()));
    if (absl::IsResourceExhausted(size.status()) || (size.ok() && *size > limits_.max_text_bytes))
      return absl::InvalidArgumentError("text too long");
    if (!size.ok()) return absl::UnavailableError(size.status().message());
    std::string text(*size, '\0');
    const absl::Status read = scanner.ReadMember(member, std::as_writable_bytes(std::span(text)));
    if (!read.ok()) return absl::UnavailableError(read.message());
    return text;
  }

  void Count(const std::vector<Medium>& media) {
    std::set<Medium> kinds;
    for (Medium medium : media) {
      ++out_.items[static_cast<size_t>(medium)];
      if (kinds.insert(medium).second) ++out_.samples_with[static_cast<size_t>(medium)];
    }
  }

  // The same for a row.
  absl::Status LookAtRow(const std::string& shard, const dataset::ScannedSample& sample,
                         dataset::SampleScanner& scanner) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::string text, Read(sample.members[0], scanner));
    std::string form = LookAtJson(text);
    const absl::StatusOr<const dataset::ParsedText*> row = parser_.ParseRow(text, FieldNames(), limits_);
    const bool is_pair = parser_.is_pair();
    if (!row.ok()) {
      return AddContext(row.status(), absl::IsNotFound(row.status()) ? "no text"
                                      : is_pair                      ? "bad pair"
                                                                     : "bad JSON");
    }
    std::vector<Medium> media;
    for (const dataset::MediaReference& reference : (*row)->references) {
      const std::string name(reference.name.value_or(""));
      const bool is_held = std::any_of(sample.members.begin() + 1, sample.members.end(),
                                       [&](const auto& other) { return other.suffix == name; });
      if (!is_held && !FindFile(shard, name)) {
        return absl::InvalidArgumentError(absl::StrCat("missing media: '", Printable(name, 200),
                                                       "' is not in ",
                                                       dataset::MediaFolder({.media = dataset_.media}, shard),
                                                       "; the dataset's key media names another folder"));
      }
      ++out_.suffixes[Printable(dataset::SuffixOfName(name), 40)];
      media.push_back(reference.medium);
    }
    Count(media);
    const bool is_plain = (*row)->conversation.plain;
    ++(is_plain ? out_.captions : out_.chats);
    ++out_.forms[!is_plain || is_pair ? form : media.empty() ? "text alone" : "media with a caption"];
    return absl::OkStatus();
  }

  // Whether there is such a file in the folder of media. The first name that is found decides which folder that is.
  bool FindFile(const std::string& shard, const std::string& name) {
    if (IsIn(dataset::MediaFolder({.media = dataset_.media}, shard), name)) return folder_is_known_ = true;
    if (folder_is_known_) return false;
    const fs::path folder = dataset::MediaFolder({}, shard);
    for (const fs::path& base : {folder, folder.parent_path()}) {
      std::vector<fs::path> candidates = {base};
      for (const std::string_view inner : kMediaFolders) candidates.push_back(base / inner);
      for (const fs::path& candidate : candidates) {
        if (candidate.empty() || !IsIn(candidate.string(), name)) continue;
        dataset_.media = candidate.string();
        return folder_is_known_ = true;
      }
    }
    return false;
  }
  bool IsIn(const std::string& folder, const std::string& name) {
    const absl::StatusOr<std::string> relative = dataset::RelativeMediaName(name, folder);
    return relative.ok() && source_->Size(dataset::MediaPath(folder, *relative)).ok();
  }

  // FailedPrecondition: Energon reads the sample in another way.
  absl::Status Compare(const dataset::ScannedSample& sample, std::string_view text, std::vector<size_t> items,
                       const dataset::ParsedText* chat) const {
    if (!dataset_.energon.has_value()) return absl::OkStatus();
    return CheckSameContent(
        *dataset_.energon,
        {.members = sample.members, .text = text, .items = std::move(items), .chat = chat, .json = root_});
  }

  // Returns why the sample cannot be used.
  absl::Status Look(const dataset::ScannedSample& sample, dataset::SampleScanner& scanner) {
    if (dataset::AreTokens(sample.tokens)) {
      EVENKEEL_ASSIGN_OR_RETURN(const std::string ids, Read(sample.members[0], scanner));
      const absl::Status parsed = parser_.ParseTokens(ids, sample.tokens).status();
      if (!parsed.ok()) return AddContext(parsed, "bad tokens");
      ++out_.captions;
      ++out_.forms["tokens"];
      return absl::OkStatus();
    }
    const dataset::SampleMember* json = nullptr;
    const dataset::SampleMember* text = nullptr;
    for (const dataset::SampleMember& member : sample.members) {
      const dataset::MemberKind kind = dataset::KindOf(member.suffix);
      if (kind == dataset::MemberKind::kJson && json == nullptr) json = &member;
      if (kind == dataset::MemberKind::kText && text == nullptr) text = &member;
    }
    if (json != nullptr) {
      EVENKEEL_ASSIGN_OR_RETURN(const std::string content, Read(*json, scanner));
      const std::string form = LookAtJson(content);
      const absl::StatusOr<const dataset::ParsedText*> chat = parser_.ParseChat(content, limits_);
      if (chat.ok()) {
        std::span<const dataset::MediaReference> references = (*chat)->references;
        if (parser_.is_pair()) references = references.first(references.size() / 2);  // each is there twice
        const auto items = dataset::ResolveItems(references, sample.key, sample.members);
        if (!items.ok()) return AddContext(items.status(), "media do not match the text");
        std::vector<Medium> media;
        for (const dataset::MediaReference& reference : references) media.push_back(reference.medium);
        EVENKEEL_RETURN_IF_ERROR(Compare(sample, json->suffix, *items, *chat));
        Count(media);
        ++out_.chats;
        ++out_.forms[form];
        return absl::OkStatus();
      }
      if (!absl::IsNotFound(chat.status()))
        return AddContext(chat.status(), parser_.is_pair() ? "bad pair" : "bad JSON");
    }
    if (text == nullptr) return absl::InvalidArgumentError("no text: neither a text nor a chat");
    EVENKEEL_ASSIGN_OR_RETURN(const std::string content, Read(*text, scanner));
    if (content.empty()) return absl::InvalidArgumentError("no text: the text is empty");
    if (!IsUtf8(content)) return absl::InvalidArgumentError("not UTF-8: the text");
    const std::vector<size_t> items = dataset::PlainItems(sample.members);
    EVENKEEL_RETURN_IF_ERROR(Compare(sample, text->suffix, items, nullptr));
    std::vector<Medium> media;
    for (size_t item : items) media.push_back(dataset::MediumOf(sample.members[item].suffix));
    Count(media);
    ++out_.captions;
    ++out_.forms[media.empty() ? "text alone" : "media with a caption"];
    return absl::OkStatus();
  }

  // The form of a chat, and which of its keys have no meaning.
  std::string LookAtJson(const std::string& content) {
    const absl::StatusOr<const dataset::JsonValue*> root = json_.Parse(content, limits_.max_json_depth);
    root_ = root.ok() ? *root : nullptr;
    if (!root.ok()) return "";
    if ((*root)->is_array()) return "a list of turns";
    std::string form;
    const bool has_pair = (*root)->Find("chosen") != nullptr && (*root)->Find("rejected") != nullptr;
    if (has_pair) form = "preference pairs";
    for (const dataset::JsonValue& member : (*root)->values()) {
      if (member.key == "messages" || member.key == "conversations") form = std::string(member.key);
      const bool is_of_pair = member.key == "chosen" || member.key == "rejected" || member.key == "prompt";
      if (has_pair && is_of_pair) continue;
      if (!HasMeaning(member.key)) ++out_.unused[Printable(member.key, 40)];
    }
    return form;
  }

  const Limits& limits_;
  const std::unique_ptr<dataset::ByteSource> source_;
  dataset::TextParser parser_;
  dataset::JsonDocument json_;
  const dataset::JsonValue* root_ = nullptr;  // of the latest JSON
  bool folder_is_known_ = false;              // of media
  FoundDataset& dataset_;
  FoundData& out_;
};

// Adds what at most `most` shards of a dataset have.
absl::Status LookAtShards(const Limits& limits, uint64_t most, FoundDataset& dataset, FoundData& out) {
  Looker looker(limits, dataset, out);
  for (const std::string& shard : dataset.shards) {
    EVENKEEL_ASSIGN_OR_RETURN(const uint64_t size, looker.SizeOf(shard));
    out.bytes += size;
  }
  const uint64_t all = dataset.shards.size(), count = std::min<uint64_t>(all, most);
  out.shards_looked_at += count;
  out.is_all = out.is_all && count == all;
  for (uint64_t i = 0; i < count; ++i) {
    EVENKEEL_ASSIGN_OR_RETURN(const bool whole, looker.LookInto(dataset.shards[i * all / count]));
    out.is_all = out.is_all && whole;
  }
  return absl::OkStatus();
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The names as one pattern whose range is the run of digits [begin, end) of the first name; empty if that gives other names.
std::string WithRange(const std::vector<std::string>& names, size_t begin, size_t end) {
  const std::string prefix = names.front().substr(0, begin), suffix = names.front().substr(end);
  const std::string& last = names.back();
  if (last.size() < prefix.size() + suffix.size() + 1 || !absl::StartsWith(last, prefix) ||
      !absl::EndsWith(last, suffix))
    return "";
  const std::string number = last.substr(prefix.size(), last.size() - prefix.size() - suffix.size());
  if (!std::all_of(number.begin(), number.end(), IsDigit)) return "";
  const std::string pattern =
      absl::StrCat(prefix, "{", names.front().substr(begin, end - begin), "..", number, "}", suffix);
  const absl::StatusOr<std::vector<std::string>> expanded = ExpandRanges(pattern);
  return expanded.ok() && *expanded == names ? pattern : "";
}

}  // namespace

uint64_t FoundData::num_unusable() const {
  uint64_t total = 0;
  for (const auto& [reason, count] : unusable) total += count;
  return total;
}

uint64_t FoundData::num_shards() const {
  uint64_t total = 0;
  for (const FoundDataset& dataset : datasets) total += dataset.shards.size();
  return total;
}

absl::StatusOr<FoundData> LookAtData(const std::string& path, const EnergonWishes& wishes,
                                     const Limits& limits) {
  FoundData out;
  if (IsEnergon(path)) {
    EVENKEEL_ASSIGN_OR_RETURN(out.datasets, EnergonDatasets(path, wishes));
  } else if (!wishes.split.empty() || wishes.as_tars) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": --split and --as-tars are for data of Megatron-Energon, a folder with .nv-meta or a "
                     "metadataset's .yaml"));
  } else {
    EVENKEEL_RETURN_IF_ERROR(FindShards(path, out.datasets.emplace_back(FoundDataset{.path = path})));
  }
  if (out.num_shards() > kMaxShards)
    return absl::InvalidArgumentError(absl::StrCat(path, ": more than ", kMaxShards, " shards"));
  const uint64_t most =
      std::clamp<uint64_t>(kMaxShardsLookedAtOfAll / out.datasets.size(), 1, kMaxShardsLookedAt);
  out.is_all = true;
  for (FoundDataset& dataset : out.datasets)
    EVENKEEL_RETURN_IF_ERROR(LookAtShards(limits, most, dataset, out));
  if (out.chats + out.captions > 0) return out;
  if (out.samples == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": its shards have no samples; ", kExpected));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": none of ", out.samples,
                   " samples can be used; the first: ", out.first_unusable.begin()->second));
}

absl::StatusOr<std::vector<std::string>> ShardPatterns(const std::vector<std::string>& names) {
  if (names.size() > 1) {
    const std::string& first = names.front();
    for (size_t end = first.size(); end > 0; --end) {
      if (!IsDigit(first[end - 1])) continue;
      size_t begin = end;
      while (begin > 0 && IsDigit(first[begin - 1])) --begin;
      if (std::string pattern = WithRange(names, begin, end); !pattern.empty())
        return std::vector<std::string>{std::move(pattern)};
      end = begin + 1;
    }
  }
  for (const std::string& name : names) {
    const absl::StatusOr<std::vector<std::string>> expanded = ExpandRanges(name);
    if (expanded.ok() && *expanded == std::vector<std::string>{name}) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        Printable(name), ": a job takes the braces in this name for a range of numbers; rename the file"));
  }
  return names;
}

}  // namespace evenkeel::cli
