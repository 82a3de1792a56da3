// The index folder: immutable files named by their content, and one file `current` that names those in use.
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

// A shard as it was when it was read. Its identity is size and content.
struct ShardEntry {
  std::string name;  // of the file, without folders
  uint64_t size = 0;
  Digest content;        // of all its bytes
  std::string stamp;     // ByteSource::Stamp: a hint, no identity
  bool damaged = false;  // read up to a damage; see the exclusions of its places
  Digest facts_key;      // FactsKey
  Digest places_file;
  Digest facts_file;
  std::vector<LengthsEntry> lengths;  // one a processor

  const LengthsEntry* FindLengths(const Digest& key) const;
};

// What `current` says: the shards of every dataset, in the job's order.
using Catalogue = std::map<std::string, std::vector<ShardEntry>>;

std::string WriteCatalogue(const Catalogue& catalogue);
// DataLoss: not a whole catalogue, with the line.
absl::StatusOr<Catalogue> ReadCatalogue(std::string_view text);

// All that places and facts depend on beside the shard: release and limits.
Digest FactsKey(const Limits& limits);
// And lengths: the processor and the limit on their length.
Digest LengthsKey(const Limits& limits, const Digest& processor);
// Names the content of the job's datasets: shard contents, lengths and their order; no path, time or history.
Digest IndexDigest(const std::vector<const std::vector<ShardEntry>*>& datasets, const Digest& lengths_key);

// What stands between a file's name and six more characters while the file is written.
inline constexpr std::string_view kTemporaryMark = ".tmp-";

std::string CurrentPath(const std::string& folder);
std::string ColumnPath(const std::string& folder, FileKind kind, const Digest& file);

// NotFound: no index there. DataLoss: damaged.
absl::StatusOr<Catalogue> LoadCatalogue(const std::string& folder, ByteSource& files);

// The last component of a path.
std::string_view FileName(std::string_view path);

// Creates folders as needed, writes beside `path`, syncs and renames: readers see the old file, the new one
// or none.
absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes);
// Writes a column file under the digest of its bytes, unless it is there already.
absl::StatusOr<Digest> StoreColumn(const std::string& folder, FileKind kind, const std::string& bytes,
                                   ByteSource& files);

}  // namespace evenkeel::dataset
