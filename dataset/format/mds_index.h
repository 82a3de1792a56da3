// The list of an MDS dataset's shards: index.json.
//
// Shards describe themselves (dataset/format/mds_shard.h); the list gives their names, their order and their sizes.
//
// Thread safety: functions without state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

inline constexpr std::string_view kMdsIndexName = "index.json";

// Whether the file at `path` is such a list, by its first shard: one of JSON rows may have its name. False: also where it
// cannot be read.
bool IsMdsIndex(ByteSource& source, const std::string& path);

// Whether a shard of a job is a list or the folder that has one, by its name: it does not end like a shard.
bool IsMdsList(std::string_view path);

// The shards that the list at `path`, or in the folder `path`, has, in their order, as paths for the source.
// InvalidArgument: not such a list; a name that leaves the folder of the list; a compression that is not read; a shard that
// has another size than in the list. NotFound: the list or a shard is missing; otherwise the errors of the source.
absl::StatusOr<std::vector<std::string>> MdsShards(ByteSource& source, const std::string& path);

}  // namespace evenkeel::dataset
