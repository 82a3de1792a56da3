// Copies the files of an index between an object store and a folder.
#include "dataset/index/far_index.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "core/address.h"
#include "core/annotated_mutex.h"
#include "core/no_index.h"
#include "core/status.h"
#include "dataset/index/index_folder.h"
#include "dataset/source/store_source.h"

namespace evenkeel::dataset {
namespace {

// A file is in memory as a whole while it is copied. The columns of a shard take some 20 bytes a sample each, so most files
// are small: one request each, and many at once, since it is the waiting that counts. The others follow, few at a time.
constexpr uint64_t kSmallBytes = 2 << 20, kMaxFileBytes = 512ull << 20;
constexpr size_t kSmallAtOnce = 32, kLargeAtOnce = 4;

// A file that its content names, in an index folder.
struct NamedFile {
  FileKind kind = FileKind::kPlaces;
  Digest digest;

  friend auto operator<=>(const NamedFile& a, const NamedFile& b) {
    return std::pair(a.kind, a.digest.bytes) <=> std::pair(b.kind, b.digest.bytes);
  }
  friend bool operator==(const NamedFile&, const NamedFile&) = default;
};

// Those of the job's datasets, each once.
std::vector<NamedFile> FilesOf(const Job& job, const Catalogue& catalogue) {
  std::vector<NamedFile> files;
  for (const DatasetSpec& dataset : job.datasets) {
    const auto found = catalogue.find(dataset.name);
    if (found == catalogue.end()) continue;
    for (const ShardEntry& shard : found->second) {
      files.push_back({FileKind::kPlaces, shard.places_file});
      files.push_back({FileKind::kFacts, shard.facts_file});
      for (const LengthsEntry& lengths : shard.lengths) files.push_back({FileKind::kLengths, lengths.file});
    }
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

// Copies a file of at most `max_bytes`, and returns whether it did: false, the file is larger.
using Copy = absl::FunctionRef<absl::StatusOr<bool>(const NamedFile&, uint64_t max_bytes)>;

// Calls `copy` with every file from `at_once` threads. Returns those that are larger. The first error ends it.
absl::StatusOr<std::vector<NamedFile>> CopyUpTo(uint64_t max_bytes, size_t at_once,
                                                const std::vector<NamedFile>& files, Copy copy) {
  Mutex mutex;
  absl::Status status;
  std::vector<NamedFile> larger;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < files.size(); i = next++) {
      const absl::StatusOr<bool> copied = copy(files[i], max_bytes);
      if (copied.ok() && *copied) continue;
      MutexLock lock(mutex);
      status.Update(copied.status());
      if (copied.ok()) larger.push_back(files[i]);
      if (!copied.ok()) next = files.size();
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(at_once, files.size()); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  EVENKEEL_RETURN_IF_ERROR(status);
  return larger;
}

absl::Status CopyAll(const std::vector<NamedFile>& files, Copy copy) {
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<NamedFile> larger,
                            CopyUpTo(kSmallBytes, kSmallAtOnce, files, copy));
  return CopyUpTo(kMaxFileBytes, kLargeAtOnce, larger, copy).status();
}

// nullopt: the file is larger than `max_bytes`. A small one is one request.
absl::StatusOr<std::optional<std::string>> ReadUpTo(uint64_t max_bytes, const std::string& path,
                                                    ByteSource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(const WholeObject whole, source.ReadWhole(path, kSmallBytes));
  if (whole.size > kMaxFileBytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", whole.size, " bytes; a file of an index has at most ", kMaxFileBytes));
  }
  if (whole.size > max_bytes) return std::nullopt;
  std::string bytes(reinterpret_cast<const char*>(whole.bytes.data()), whole.bytes.size());
  if (bytes.size() == whole.size) return bytes;
  bytes.resize(whole.size);
  EVENKEEL_RETURN_IF_ERROR(source.ReadAt(path, 0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

// The folder of the copy. The address names it, so that every process of the user finds the same one.
absl::StatusOr<std::string> CopyOf(const std::string& address, const std::string& cache_folder) {
  std::string folder = cache_folder;
  if (folder.empty()) {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    if (cache != nullptr && cache[0] == '/') {
      folder = absl::StrCat(cache, "/evenkeel");
    } else if (home != nullptr && home[0] == '/') {
      folder = absl::StrCat(home, "/.cache/evenkeel");
    } else {
      return absl::FailedPreconditionError(absl::StrCat(
          address, ": no folder for a copy of the index: set HOME or XDG_CACHE_HOME, or give --cache-dir"));
    }
  }
  return absl::StrCat(folder, "/index/", DigestOf(address).Hex());
}

absl::StatusOr<Catalogue> ReadFarCatalogue(const std::string& address, const std::string& text) {
  absl::StatusOr<Catalogue> catalogue = ReadCatalogue(text);
  if (catalogue.ok()) return catalogue;
  return absl::DataLossError(absl::StrCat(CurrentPath(address), ": ",
                                          std::string(catalogue.status().message()),
                                          "; remove it and run 'evenkeel index' again"));
}

// NotFound with the mark: there is a bucket, and no index.
absl::StatusOr<std::string> ReadCurrent(const std::string& address, ByteSource& source) {
  absl::StatusOr<WholeObject> current = source.ReadWhole(CurrentPath(address), kMaxFileBytes);
  if (absl::IsNotFound(current.status())) {
    const std::string why(current.status().message());
    if (why.find("NoSuchBucket") != std::string::npos) return current.status();
    return WithNoIndex(absl::NotFoundError(absl::StrCat(why, "; there is no index: run 'evenkeel index'")));
  }
  EVENKEEL_RETURN_IF_ERROR(current.status());
  if (current->bytes.size() != current->size)
    return absl::DataLossError(
        absl::StrCat(CurrentPath(address), ": ", current->size, " bytes are too many"));
  return std::string(reinterpret_cast<const char*>(current->bytes.data()), current->bytes.size());
}

absl::Status WriteCopy(const std::string& address, const std::string& path, std::string_view bytes) {
  const absl::Status written = WriteFileAtomically(path, bytes);
  if (written.ok()) return written;
  return absl::Status(written.code(),
                      absl::StrCat(std::string(written.message()), "; the copy of ", address,
                                   " is made there: give a folder by --cache-dir, or by XDG_CACHE_HOME"));
}

// What a file's name says of its content is checked, so that a copy has no other bytes than the index that was built.
absl::StatusOr<bool> FetchFile(const std::string& address, const std::string& folder, const NamedFile& file,
                               uint64_t max_bytes, ByteSource& source) {
  const std::string local = ColumnPath(folder, file.kind, file.digest);
  std::error_code ignored;
  if (std::filesystem::exists(local, ignored)) return true;
  const std::string far = ColumnPath(address, file.kind, file.digest);
  const std::string repair =
      absl::StrCat("; remove ", CurrentPath(address), " and run 'evenkeel index' again");
  const absl::StatusOr<std::optional<std::string>> bytes = ReadUpTo(max_bytes, far, source);
  if (absl::IsNotFound(bytes.status()))
    return absl::DataLossError(
        absl::StrCat(std::string(bytes.status().message()), "; a file of the index is missing", repair));
  EVENKEEL_RETURN_IF_ERROR(bytes.status());
  if (!bytes->has_value()) return false;
  if (const Digest digest = DigestOf(**bytes); digest != file.digest) {
    return absl::DataLossError(
        absl::StrCat(far, ": damaged: its content has the digest ", digest.Hex(), repair));
  }
  EVENKEEL_RETURN_IF_ERROR(WriteCopy(address, local, **bytes));
  return true;
}

}  // namespace

absl::Status FetchIndex(Job& job, const std::string& cache_folder) {
  if (!IsAddress(job.index)) return absl::OkStatus();
  const std::string address = job.index;
  EVENKEEL_ASSIGN_OR_RETURN(const std::string folder, CopyOf(address, cache_folder));
  const std::unique_ptr<ByteSource> source = MakeStoreSource(job.stores, MakeFileSource());
  absl::StatusOr<std::string> text = ReadCurrent(address, *source);
  std::error_code ignored;
  if (IsNoIndex(text.status())) {
    std::filesystem::remove(CurrentPath(folder), ignored);
    job.index = folder;
  }
  EVENKEEL_RETURN_IF_ERROR(text.status());
  EVENKEEL_ASSIGN_OR_RETURN(const Catalogue catalogue, ReadFarCatalogue(address, *text));
  EVENKEEL_RETURN_IF_ERROR(CopyAll(FilesOf(job, catalogue), [&](const NamedFile& file, uint64_t max_bytes) {
    return FetchFile(address, folder, file, max_bytes, *source);
  }));
  EVENKEEL_RETURN_IF_ERROR(WriteCopy(address, CurrentPath(folder), *text));
  job.index = folder;
  return absl::OkStatus();
}

absl::Status PublishIndex(const Job& job, const std::string& address) {
  if (!IsAddress(address)) return absl::OkStatus();
  const std::unique_ptr<ByteSource> source = MakeStoreSource(job.stores, MakeFileSource());
  EVENKEEL_ASSIGN_OR_RETURN(const Catalogue built, LoadCatalogue(job.index, *source));
  absl::StatusOr<std::string> text = ReadCurrent(address, *source);
  Catalogue present;
  if (text.ok()) {
    EVENKEEL_ASSIGN_OR_RETURN(present, ReadFarCatalogue(address, *text));
  } else if (!IsNoIndex(text.status())) {
    return text.status();
  }
  const std::vector<NamedFile> there = FilesOf(job, present);
  std::vector<NamedFile> files = FilesOf(job, built);
  std::erase_if(files,
                [&](const NamedFile& file) { return std::binary_search(there.begin(), there.end(), file); });
  for (const DatasetSpec& dataset : job.datasets) present[dataset.name] = built.at(dataset.name);
  const std::string next = WriteCatalogue(present);
  if (text.ok() && *text == next) return absl::OkStatus();
  const std::unique_ptr<ObjectWriter> writer = MakeObjectWriter(job.stores);
  EVENKEEL_RETURN_IF_ERROR(
      CopyAll(files, [&](const NamedFile& file, uint64_t max_bytes) -> absl::StatusOr<bool> {
        EVENKEEL_ASSIGN_OR_RETURN(
            const std::optional<std::string> bytes,
            ReadUpTo(max_bytes, ColumnPath(job.index, file.kind, file.digest), *source));
        if (!bytes) return false;
        EVENKEEL_RETURN_IF_ERROR(writer->Write(ColumnPath(address, file.kind, file.digest), *bytes));
        return true;
      }));
  return writer->Write(CurrentPath(address), next);
}

}  // namespace evenkeel::dataset
