// Removes the files of an index folder that neither the current catalogue nor this job's step table uses.
#include "dataset/index_prune.h"

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "dataset/index/index.h"
#include "dataset/index/index_folder.h"
#include "dataset/order/step_table.h"
#include "dataset/source/paged_file.h"

namespace evenkeel::dataset {

namespace {

constexpr FileKind kColumns[] = {FileKind::kPlaces, FileKind::kFacts, FileKind::kLengths};
constexpr size_t kHeaderCacheBytes = 1 << 16;

std::set<std::string> Named(const std::string& folder, const Catalogue& catalogue) {
  std::set<std::string> paths;
  for (const auto& [dataset, shards] : catalogue) {
    for (const ShardEntry& shard : shards) {
      paths.insert(ColumnPath(folder, FileKind::kPlaces, shard.places_file));
      paths.insert(ColumnPath(folder, FileKind::kFacts, shard.facts_file));
      for (const LengthsEntry& lengths : shard.lengths) {
        paths.insert(ColumnPath(folder, FileKind::kLengths, lengths.file));
      }
    }
  }
  return paths;
}

// Whether the name is that of an index file or of its temporary predecessor. Other files are not touched.
bool IsOurs(const std::string& name) {
  Digest digest;
  const std::string stem = name.substr(0, name.find(kTemporaryMark));
  return Digest::FromHex(stem, &digest);
}

// Calls `remove` for every index file in the folder of one kind.
template <typename Remove>
absl::Status ForEachFile(const std::string& folder, FileKind kind, Remove remove) {
  const std::filesystem::path of_kind =
      std::filesystem::path(ColumnPath(folder, kind, Digest())).parent_path();
  std::error_code error;
  std::filesystem::directory_iterator it(of_kind, error), end;
  if (error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  for (; !error && it != end; it.increment(error)) {
    if (!it->is_regular_file(error) || !IsOurs(it->path().filename())) continue;
    EVENKEEL_RETURN_IF_ERROR(remove(it->path().string()));
  }
  if (error) return absl::UnavailableError(absl::StrCat(of_kind.string(), ": ", error.message()));
  return absl::OkStatus();
}

absl::Status Remove(const std::string& path, PruneSummary& summary) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error || !std::filesystem::remove(path, error)) {
    const bool gone = !error || error == std::errc::no_such_file_or_directory;
    if (gone) return absl::OkStatus();
    const std::string message = absl::StrCat(path, ": ", error.message());
    return error == std::errc::permission_denied ? absl::PermissionDeniedError(message)
                                                 : absl::UnavailableError(message);
  }
  ++summary.files;
  summary.bytes += bytes;
  return absl::OkStatus();
}

bool IsTableOf(const Digest& key, const std::string& path, ByteSource& files, PageCache& cache) {
  absl::StatusOr<std::unique_ptr<PagedFile>> file = PagedFile::Open(files, cache, path, FileKind::kSteps);
  return file.ok() && (*file)->header().key == key;
}

}  // namespace

absl::StatusOr<PruneSummary> PruneIndex(const Job& job, const Digest& processor, ByteSource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<Index> index, Index::Open(job, processor, source));
  const Digest steps = StepTableKey(job, *index);
  const std::unique_ptr<ByteSource> files = MakeFileSource();
  EVENKEEL_ASSIGN_OR_RETURN(Catalogue catalogue, LoadCatalogue(job.index, *files));
  const std::set<std::string> named = Named(job.index, catalogue);
  PruneSummary summary;
  for (FileKind kind : kColumns) {
    EVENKEEL_RETURN_IF_ERROR(ForEachFile(job.index, kind, [&](const std::string& path) {
      return named.contains(path) ? absl::OkStatus() : Remove(path, summary);
    }));
  }
  PageCache cache(kHeaderCacheBytes);
  EVENKEEL_RETURN_IF_ERROR(ForEachFile(job.index, FileKind::kSteps, [&](const std::string& path) {
    return IsTableOf(steps, path, *files, cache) ? absl::OkStatus() : Remove(path, summary);
  }));
  return summary;
}

}  // namespace evenkeel::dataset
