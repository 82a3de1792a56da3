// Reads index.json shard by shard, so that the number of its values has no limit but that of shards.
#include "dataset/format/mds_index.h"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/job_syntax.h"
#include "core/packing.h"
#include "core/status.h"
#include "core/utf8.h"
#include "dataset/format/json.h"
#include "dataset/format/mds_shard.h"
#include "dataset/format/media_file.h"
#include "dataset/source/store_source.h"

namespace evenkeel::dataset {
namespace {

constexpr uint64_t kMaxListBytes = 1ull << 30;
constexpr uint32_t kListDepth = 8;

struct List {
  std::vector<std::string_view> shards;  // a JSON object each
};

// Cuts the objects out of the only list of the outer object: what remains, with 0 in their places, is parsed as well.
absl::StatusOr<List> Split(std::string_view text) {
  List list;
  std::string outer;
  uint64_t depth = 0, begin = 0;
  bool in_string = false, escaped = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_inside = depth > 2;
    if (in_string) {
      in_string = escaped || c != '"';
      escaped = !escaped && c == '\\';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth == 3) begin = i;
    } else if ((c == '}' || c == ']') && depth > 0 && depth-- == 3) {
      list.shards.push_back(text.substr(begin, i + 1 - begin));
      outer += '0';
      if (list.shards.size() > kMaxShards)
        return absl::InvalidArgumentError(absl::StrCat("more than ", kMaxShards, " shards"));
    }
    if (!is_inside && depth <= 2) outer += c;
  }
  JsonDocument document;
  EVENKEEL_ASSIGN_OR_RETURN(const JsonValue* root, document.Parse(outer, kListDepth));
  const JsonValue* version = root->is_object() ? root->Find("version") : nullptr;
  const JsonValue* shards = root->is_object() ? root->Find("shards") : nullptr;
  if (version == nullptr || shards == nullptr || !shards->is_array())
    return absl::InvalidArgumentError("no object with 'version' and a list 'shards'");
  if (version->text != "2") {
    return absl::InvalidArgumentError(
        absl::StrCat("version ", Printable(version->text, 20), "; 2 is the one that is read"));
  }
  size_t num_shards = 0;
  for (const JsonValue& shard : shards->values()) num_shards += shard.text == "0";
  if (num_shards != list.shards.size())
    return absl::InvalidArgumentError("more than one list, or no list of objects");
  return list;
}

struct File {
  std::string name;
  uint64_t num_bytes = 0;
};

// raw_data or zip_data; nullopt: null.
absl::StatusOr<std::optional<File>> FileOf(const JsonValue& shard, std::string_view key) {
  const JsonValue* data = shard.Find(key);
  if (data == nullptr || data->is_null()) return std::optional<File>();
  const JsonValue* name = data->is_object() ? data->Find("basename") : nullptr;
  const JsonValue* bytes = data->is_object() ? data->Find("bytes") : nullptr;
  File file;
  if (name == nullptr || !name->is_string() || bytes == nullptr ||
      !absl::SimpleAtoi(absl::string_view(bytes->text.data(), bytes->text.size()), &file.num_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(key), " without basename and bytes"));
  }
  file.name = std::string(name->text);
  return std::optional<File>(std::move(file));
}

// The file that is read of a shard.
absl::StatusOr<File> ShardOf(std::string_view text) {
  JsonDocument document;
  EVENKEEL_ASSIGN_OR_RETURN(const JsonValue* shard, document.Parse(text, kListDepth));
  EVENKEEL_RETURN_IF_ERROR(MdsColumnsOf(*shard).status());
  EVENKEEL_ASSIGN_OR_RETURN(const std::optional<File> zip, FileOf(*shard, "zip_data"));
  if (zip.has_value() && PackingOf(zip->name) == Packing::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Printable(zip->name, 200),
                     "' is compressed in a form that is not read; "
                     "write the dataset with compression zstd or gz, or without"));
  }
  if (zip.has_value()) return *zip;
  EVENKEEL_ASSIGN_OR_RETURN(std::optional<File> raw, FileOf(*shard, "raw_data"));
  if (!raw.has_value()) return absl::InvalidArgumentError("no raw_data");
  return *std::move(raw);
}

absl::StatusOr<std::string> ReadText(ByteSource& source, const std::string& path) {
  EVENKEEL_ASSIGN_OR_RETURN(const uint64_t size, source.Size(path));
  if (size > kMaxListBytes) return absl::InvalidArgumentError(absl::StrCat(path, ": larger than 1 GiB"));
  std::string text(size, '\0');
  EVENKEEL_RETURN_IF_ERROR(source.ReadAt(path, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace

bool IsMdsIndex(ByteSource& source, const std::string& path) {
  const absl::StatusOr<std::string> text = ReadText(source, path);
  if (!text.ok()) return false;
  const absl::StatusOr<List> list = Split(*text);
  if (!list.ok() || list->shards.empty()) return false;
  JsonDocument document;
  const absl::StatusOr<const JsonValue*> shard = document.Parse(list->shards.front(), kListDepth);
  return shard.ok() && MdsColumnsOf(**shard).ok();
}

bool IsMdsList(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  return name.find(".mds") == std::string_view::npos;
}

absl::StatusOr<std::vector<std::string>> MdsShards(ByteSource& source, const std::string& path) {
  std::string list_path = path;
  if (!path.ends_with(".json"))
    list_path = absl::StrCat(path, path.ends_with("/") ? "" : "/", std::string(kMdsIndexName));
  EVENKEEL_ASSIGN_OR_RETURN(const std::string text, ReadText(source, list_path));
  const absl::StatusOr<List> list = Split(text);
  if (!list.ok()) {
    return AddContext(list.status(),
                      absl::StrCat(list_path,
                                   ": not the list of an MDS dataset (rows in JSON need 'format: "
                                   "json')"));
  }
  const std::string folder = MediaFolder({}, list_path);
  std::vector<std::string> shards;
  std::vector<uint64_t> sizes;
  const auto where = [&](size_t i) { return absl::StrCat(list_path, ": shards[", i, "]"); };
  for (size_t i = 0; i < list->shards.size(); ++i) {
    const absl::StatusOr<File> file = ShardOf(list->shards[i]);
    if (!file.ok()) return AddContext(file.status(), where(i));
    const absl::StatusOr<std::string> name = RelativeMediaName(file->name, folder);
    if (!name.ok()) return AddContext(name.status(), where(i));
    shards.push_back(absl::StrCat(folder, "/", *name));
    sizes.push_back(file->num_bytes);
  }
  if (shards.empty()) return absl::InvalidArgumentError(absl::StrCat(list_path, ": no shards"));
  LookAtFolders(source, shards);
  for (size_t i = 0; i < shards.size(); ++i) {
    EVENKEEL_ASSIGN_OR_RETURN(const uint64_t size, source.Size(shards[i]));
    if (size == sizes[i]) continue;
    return absl::InvalidArgumentError(absl::StrCat(where(i), ": ", shards[i], " has ", size,
                                                   " bytes, in the list it has ", sizes[i],
                                                   "; copy the dataset again"));
  }
  return shards;
}

}  // namespace evenkeel::dataset
