// Replaces patterns of object stores, and lists of MDS datasets, by the shards that they stand for.
#include "dataset/format/shard_list.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/address.h"
#include "core/status.h"
#include "dataset/format/mds_index.h"
#include "dataset/source/store_source.h"

namespace evenkeel::dataset {

absl::Status ListShards(ByteSource& source, Job& job) {
  for (DatasetSpec& dataset : job.datasets) {
    LookAtFolders(source, dataset.shards);
    const auto is_pattern = [](const std::string& shard) { return IsAddress(shard) && HasPattern(shard); };
    const auto is_list = [&](const std::string& shard) {
      return dataset.format == DataFormat::kMds && !is_pattern(shard) && IsMdsList(shard);
    };
    const auto stands_for_others = [&](const std::string& shard) {
      return is_pattern(shard) || is_list(shard);
    };
    if (std::ranges::none_of(dataset.shards, stands_for_others)) continue;
    std::vector<std::string> shards;
    for (std::string& shard : dataset.shards) {
      if (!stands_for_others(shard)) {
        shards.push_back(std::move(shard));
        continue;
      }
      EVENKEEL_ASSIGN_OR_RETURN(std::vector<std::string> found,
                                is_list(shard) ? MdsShards(source, shard) : source.List(shard));
      if (found.empty()) {
        return absl::NotFoundError(
            absl::StrCat(job.path, ": datasets '", dataset.name, "': ", shard, " stands for no object"));
      }
      shards.insert(shards.end(), std::make_move_iterator(found.begin()),
                    std::make_move_iterator(found.end()));
    }
    std::set<std::string_view> seen;
    for (const std::string& shard : shards) {
      if (!seen.insert(shard).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(job.path, ": datasets '", dataset.name, "': ", shard, " is listed twice"));
      }
    }
    dataset.shards = std::move(shards);
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::dataset
