// Reads and writes the catalogue and the column files of an index folder.
#include "dataset/index/index_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/status.h"
#include "core/utf8.h"
#include "core/write_all.h"

namespace evenkeel::dataset {
namespace {

constexpr std::string_view kTitle = "evenkeel index 1";
constexpr uint64_t kMaxCatalogueBytes = 1ull << 30;

// Names are words of a line: '%', spaces and control characters are written as %XX. Never empty.
std::string Escape(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (char c : text) {
    uint8_t byte = static_cast<uint8_t>(c);
    if (byte <= 0x20 || byte == 0x7F || c == '%') {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out.empty() ? "%" : out;
}

bool Unescape(absl::string_view text, std::string* out) {
  out->clear();
  if (text == "%") return true;
  auto digit = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out->push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size() || digit(text[i + 1]) < 0 || digit(text[i + 2]) < 0) return false;
    out->push_back(static_cast<char>(digit(text[i + 1]) << 4 | digit(text[i + 2])));
    i += 2;
  }
  return true;
}

using Words = std::vector<absl::string_view>;

bool ReadDigest(absl::string_view word, Digest* out) {
  return Digest::FromHex(std::string_view(word.data(), word.size()), out);
}

bool ReadShard(const Words& words, ShardEntry* shard) {
  return words.size() == 9 && Unescape(words[1], &shard->name) && absl::SimpleAtoi(words[2], &shard->size) &&
         ReadDigest(words[3], &shard->content) && Unescape(words[4], &shard->stamp) &&
         absl::SimpleAtob(words[5], &shard->damaged) && ReadDigest(words[6], &shard->facts_key) &&
         ReadDigest(words[7], &shard->places_file) && ReadDigest(words[8], &shard->facts_file);
}

bool ReadLengths(const Words& words, LengthsEntry* entry) {
  LengthsTotals& totals = entry->totals;
  return words.size() == 8 && ReadDigest(words[1], &entry->key) && ReadDigest(words[2], &entry->file) &&
         ReadDigest(words[3], &totals.content) && absl::SimpleAtoi(words[4], &totals.rows) &&
         totals.rows <= kMaxSamplesPerShard && absl::SimpleAtoi(words[5], &totals.items) &&
         absl::SimpleAtoi(words[6], &totals.llm_tokens) && absl::SimpleAtoi(words[7], &totals.loss_tokens);
}

absl::Status Errno(const std::string& path) {
  int error = errno;
  std::string message = absl::StrCat(path, ": ", std::strerror(error));
  if (error == EACCES || error == EROFS || error == EPERM) return absl::PermissionDeniedError(message);
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
  return absl::UnavailableError(message);
}

absl::Status MakeFolders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    std::string folder = path.substr(0, slash);
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
      struct stat info;
      if (::stat(folder.c_str(), &info) != 0) return Errno(folder);
    }
  }
  return absl::OkStatus();
}

absl::Status SyncFolderOf(const std::string& path) {
  size_t slash = path.rfind('/');
  std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return Errno(folder);
  int failed = ::fsync(descriptor);
  // Some network file systems cannot sync a folder and return EINVAL. The rename is atomic there, too.
  absl::Status status = failed != 0 && errno != EINVAL ? Errno(folder) : absl::OkStatus();
  ::close(descriptor);
  return status;
}

}  // namespace

const LengthsEntry* ShardEntry::FindLengths(const Digest& key) const {
  for (const LengthsEntry& entry : lengths) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

std::string WriteCatalogue(const Catalogue& catalogue) {
  std::string out = absl::StrCat(std::string(kTitle), "\n");
  for (const auto& [dataset, shards] : catalogue) {
    absl::StrAppend(&out, "dataset ", Escape(dataset), "\n");
    for (const ShardEntry& shard : shards) {
      absl::StrAppend(&out, "shard ", Escape(shard.name), " ", shard.size, " ", shard.content.Hex());
      absl::StrAppend(&out, " ", Escape(shard.stamp), " ", shard.damaged ? "1" : "0", " ",
                      shard.facts_key.Hex());
      absl::StrAppend(&out, " ", shard.places_file.Hex(), " ", shard.facts_file.Hex(), "\n");
      for (const LengthsEntry& entry : shard.lengths) {
        const LengthsTotals& totals = entry.totals;
        absl::StrAppend(&out, "lengths ", entry.key.Hex(), " ", entry.file.Hex(), " ", totals.content.Hex(),
                        " ");
        absl::StrAppend(&out, totals.rows, " ", totals.items, " ", totals.llm_tokens, " ", totals.loss_tokens,
                        "\n");
      }
    }
  }
  absl::StrAppend(&out, "end ", DigestOf(out).Hex(), "\n");
  return out;
}

absl::StatusOr<Catalogue> ReadCatalogue(std::string_view text) {
  Catalogue catalogue;
  std::vector<ShardEntry>* shards = nullptr;
  size_t number = 0, begin = 0;
  bool ended = false;
  while (begin < text.size()) {
    size_t end = text.find('\n', begin);
    if (end == std::string_view::npos || ended) break;
    absl::string_view line(text.data() + begin, end - begin);
    Words words = absl::StrSplit(line, ' ');
    bool good = false;
    Digest digest;
    if (++number == 1) {
      good = line == absl::string_view(kTitle.data(), kTitle.size());
    } else if (words[0] == "dataset" && words.size() == 2) {
      std::string name;
      good = Unescape(words[1], &name);
      auto [found, fresh] = catalogue.try_emplace(name);
      good = good && fresh;
      shards = &found->second;
    } else if (words[0] == "shard" && shards != nullptr) {
      good = ReadShard(words, &shards->emplace_back());
    } else if (words[0] == "lengths" && shards != nullptr && !shards->empty()) {
      good = ReadLengths(words, &shards->back().lengths.emplace_back());
    } else if (words[0] == "end" && words.size() == 2) {
      good = ReadDigest(words[1], &digest) && digest == DigestOf(text.substr(0, begin));
      ended = true;
    }
    if (!good) return absl::DataLossError(absl::StrCat("damaged index catalogue, line ", number));
    begin = end + 1;
  }
  if (!ended || begin != text.size())
    return absl::DataLossError("damaged index catalogue: the last line is missing");
  return catalogue;
}

// What decides, in addition to its bytes, which samples a file has. Nothing for WebDataset: it has no options, and its
// digests are older than the other formats.
static void AddFormat(const DatasetSpec& dataset, CanonicalText& text) {
  if (dataset.format == DataFormat::kWebDataset) return;
  text.Add("format", FormatName(dataset.format));
  const FieldNames& fields = dataset.fields;
  for (const std::string* name : {&fields.messages, &fields.text, &fields.prompt, &fields.answer,
                                  &fields.image, &fields.audio, &fields.video})
    text.Add("field", std::string_view(*name));
  if (!fields.chosen.empty()) {  // digests are older than these
    text.Add("chosen", std::string_view(fields.chosen));
    text.Add("rejected", std::string_view(fields.rejected));
  }
}

Digest FactsKey(const Job& job, const DatasetSpec& dataset) {
  const Limits& limits = job.limits;
  CanonicalText text("evenkeel facts 4");
  text.Add("stream_version", uint64_t{kStreamVersion});
  text.Add("max_image_bytes", limits.max_image_bytes);
  text.Add("max_audio_bytes", limits.max_audio_bytes);
  text.Add("max_video_bytes", limits.max_video_bytes);
  text.Add("max_text_bytes", limits.max_text_bytes);
  text.Add("max_image_pixels", limits.max_image_pixels);
  text.Add("max_image_side", limits.max_image_side);
  text.Add("max_jpeg_scans", uint64_t{limits.max_jpeg_scans});
  text.Add("max_jpeg_coefficient_bytes", limits.max_jpeg_coefficient_bytes);
  text.Add("max_decode_ratio", limits.max_decode_ratio);
  text.Add("max_video_pixels", limits.max_video_pixels);
  text.Add("max_video_frames", limits.max_video_frames);
  text.Add("max_streams", uint64_t{limits.max_streams});
  text.Add("max_audio_seconds", limits.max_audio_seconds);
  text.Add("max_json_depth", uint64_t{limits.max_json_depth});
  text.Add("max_items", uint64_t{limits.max_items});
  text.Add("frames", std::string_view(job.processor.frames));
  if (job.processor.use_audio_in_video) text.Add("audio_of_videos", uint64_t{1});
  // Which members of a tar are samples: with compressed ones since they are read.
  if (dataset.format == DataFormat::kWebDataset) text.Add("compressed_members", uint64_t{1});
  AddFormat(dataset, text);
  return text.digest();
}

Digest LengthsKey(const Job& job, const DatasetSpec& dataset, const Digest& processor) {
  CanonicalText text("evenkeel lengths 1");
  text.Add("facts", FactsKey(job, dataset).Hex());
  text.Add("processor", processor.Hex());
  text.Add("max_llm_length", job.limits.max_llm_length);
  for (const std::string& name : job.columns) text.Add("column", std::string_view(name));
  if (!job.columns.empty()) text.Add("max_column_bytes", job.limits.max_column_bytes);
  return text.digest();
}

Digest IndexDigest(const Job& job, const std::vector<const std::vector<ShardEntry>*>& datasets,
                   const Digest& processor) {
  CanonicalText text("evenkeel index content 1");
  for (size_t i = 0; i < datasets.size(); ++i) {
    const Digest lengths_key = LengthsKey(job, job.datasets[i], processor);
    text.Add("dataset", uint64_t{datasets[i]->size()});
    AddFormat(job.datasets[i], text);
    for (const ShardEntry& shard : *datasets[i]) {
      const LengthsEntry* lengths = shard.FindLengths(lengths_key);
      text.Add("bytes", shard.size);
      text.Add("content", shard.content.Hex());
      text.Add("lengths", lengths == nullptr ? std::string() : lengths->totals.content.Hex());
    }
  }
  return text.digest();
}

std::string CurrentPath(const std::string& folder) { return absl::StrCat(folder, "/current"); }

std::string ColumnPath(const std::string& folder, FileKind kind, const Digest& file) {
  static constexpr const char* kNames[] = {"", "places", "facts", "lengths", "steps"};
  return absl::StrCat(folder, "/", kNames[static_cast<size_t>(kind)], "/", file.Hex());
}

std::string ProgressPath(const std::string& folder, std::string_view name) {
  return absl::StrCat(folder, "/progress/", std::string(name));
}

namespace {

absl::StatusOr<Catalogue> LoadCatalogueAt(const std::string& path, ByteSource& files) {
  EVENKEEL_ASSIGN_OR_RETURN(uint64_t size, files.Size(path));
  if (size > kMaxCatalogueBytes) return absl::DataLossError(absl::StrCat(path, ": too large"));
  std::string text(size, '\0');
  EVENKEEL_RETURN_IF_ERROR(files.ReadAt(path, 0, std::as_writable_bytes(std::span(text))));
  absl::StatusOr<Catalogue> catalogue = ReadCatalogue(text);
  if (!catalogue.ok()) {
    return AddContext(absl::DataLossError(absl::StrCat(catalogue.status().message(),
                                                       "; remove it and run 'evenkeel index' again")),
                      path);
  }
  return catalogue;
}

// The paths of the notes of a run, in the order of their names.
std::vector<std::string> ProgressPaths(const std::string& folder, std::string_view name) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator it(ProgressPath(folder, ""), error), end; !error && it != end;
       it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (file.starts_with(name) && file.find(kTemporaryMark) == std::string::npos)
      paths.push_back(it->path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

absl::StatusOr<Catalogue> LoadCatalogue(const std::string& folder, ByteSource& files) {
  return LoadCatalogueAt(CurrentPath(folder), files);
}

std::vector<Catalogue> LoadProgress(const std::string& folder, std::string_view name, ByteSource& files) {
  std::vector<Catalogue> out;
  for (const std::string& path : ProgressPaths(folder, name)) {
    absl::StatusOr<Catalogue> catalogue = LoadCatalogueAt(path, files);
    if (catalogue.ok()) out.push_back(*std::move(catalogue));
  }
  return out;
}

void RemoveProgress(const std::string& folder, std::string_view name) {
  for (const std::string& path : ProgressPaths(folder, name)) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
}

std::string_view FileName(std::string_view path) {
  size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes) {
  EVENKEEL_RETURN_IF_ERROR(MakeFolders(path));
  std::string temporary = absl::StrCat(path, std::string(kTemporaryMark), "XXXXXX");
  int descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return Errno(temporary);
  ::fchmod(descriptor, 0644);
  absl::Status status;
  if (!WriteAll(descriptor, bytes) || ::fsync(descriptor) != 0) status = Errno(temporary);
  if (::close(descriptor) != 0 && status.ok()) status = Errno(temporary);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) status = Errno(path);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return SyncFolderOf(path);
}

absl::StatusOr<Digest> StoreColumn(const std::string& folder, FileKind kind, const std::string& bytes,
                                   ByteSource& files) {
  Digest digest = DigestOf(bytes);
  std::string path = ColumnPath(folder, kind, digest);
  absl::StatusOr<uint64_t> there = files.Size(path);
  if (there.ok() && *there == bytes.size()) return digest;
  EVENKEEL_RETURN_IF_ERROR(WriteFileAtomically(path, bytes));
  return digest;
}

}  // namespace evenkeel::dataset
