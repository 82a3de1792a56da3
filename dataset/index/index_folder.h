// The index folder: immutable files named by their content, and a file `current` that names those in use.
//
//   current                 the catalogue, replaced by an atomic rename
//   places/<digest>         facts/<digest>         lengths/<digest>         steps/<digest>
//
// Thread safety: plain functions and values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/job.h"
#include "dataset/index/columns.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

// The lengths of a shard for one processor.
struct LengthsEntry {
  Digest key;  // LengthsKey
  Digest file;
  LengthsTotals totals;
};

// A shard as it was read. Its identity is its size and content.
struct ShardEntry {
  std::string name;  // file name without folders
  uint64_t size = 0;
  Digest content;        // digest of all its bytes
  std::string stamp;     // ByteSource::Stamp: a hint, not an identity
  bool damaged = false;  // read up to a damage; the exclusions of its places describe it
  Digest facts_key;      // FactsKey
  Digest places_file;
  Digest facts_file;
  std::vector<LengthsEntry> lengths;  // one for each processor

  const LengthsEntry* FindLengths(const Digest& key) const;
};

// The contents of `current`: the shards of every dataset, in the job's order.
using Catalogue = std::map<std::string, std::vector<ShardEntry>>;

std::string WriteCatalogue(const Catalogue& catalogue);
// DataLoss: not a complete catalogue; names the line.
absl::StatusOr<Catalogue> ReadCatalogue(std::string_view text);

// Everything that places and facts depend on in addition to the shard: release, limits, loader of videos, and how the
// dataset's files are read.
Digest FactsKey(const Job& job, const DatasetSpec& dataset);
// Everything that lengths depend on in addition: the processor and the limit on their length.
Digest LengthsKey(const Job& job, const DatasetSpec& dataset, const Digest& processor);
// Names the content of the job's datasets: shard contents, how they are read, lengths and their order; no path or time.
// `datasets`: the shards of each of the job's datasets.
Digest IndexDigest(const Job& job, const std::vector<const std::vector<ShardEntry>*>& datasets,
                   const Digest& processor);

// In a stamp: that of the shard is before it, that of the files that its rows name after it.
inline constexpr std::string_view kMediaMark = " media ";
inline std::string_view FileStamp(std::string_view stamp) { return stamp.substr(0, stamp.find(kMediaMark)); }

// Separates a file's name from six more characters while the file is written.
inline constexpr std::string_view kTemporaryMark = ".tmp-";

std::string CurrentPath(const std::string& folder);
// Where a run, or a part of one, notes the shards that it has built: `name` is that of the run.
std::string ProgressPath(const std::string& folder, std::string_view name);
std::string ColumnPath(const std::string& folder, FileKind kind, const Digest& file);

// NotFound: no index in this folder. DataLoss: damaged.
absl::StatusOr<Catalogue> LoadCatalogue(const std::string& folder, ByteSource& files);
// The notes of all runs whose name begins so. What cannot be read is left out: its shards are built again.
std::vector<Catalogue> LoadProgress(const std::string& folder, std::string_view name, ByteSource& files);
// Failures are ignored: what stays is used once more, or is overwritten.
void RemoveProgress(const std::string& folder, std::string_view name);

// The last component of a path.
std::string_view FileName(std::string_view path);

// Creates folders as needed, writes a temporary file next to `path`, syncs and renames it: readers see the
// old file, the new one or none.
absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes);
// Writes a column file under the digest of its bytes, unless it already exists.
absl::StatusOr<Digest> StoreColumn(const std::string& folder, FileKind kind, const std::string& bytes,
                                   ByteSource& files);

}  // namespace evenkeel::dataset
