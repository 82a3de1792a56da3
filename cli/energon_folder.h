// A folder that `energon prepare` of Megatron-Energon has written: tar files, and `.nv-meta` with their list and their splits.
//
// All files are untrusted: their sizes and the number of shards are bounded, and no name leads out of the folder.
// Thread safety: functions without state; plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace evenkeel::cli {

inline constexpr char kEnergonNotes[] = ".nv-meta";  // the folder's own folder

// The shards of one split.
struct EnergonSplit {
  std::vector<std::string> shards;   // paths, in the order of split.yaml
  std::vector<std::string> exclude;  // "shard-file-name/key"
  uint64_t samples = 0;              // of the shards by .info.json, less the excluded ones
  std::string file;                  // that has the splits
};

// Whether `path` is a folder with notes of Energon.
bool IsEnergonFolder(const std::string& path);

// The shards of the split `split` as Energon reads them: the names of `split_config` (empty: split.yaml, else split.json) with their
// braces expanded, without those of `exclude`. NotFound: a file of .nv-meta is missing. InvalidArgument: one of them is damaged or
// has something else than Energon writes; there is no such split, with the names of those that there are; a name is not one of
// .info.json's; shards are missing; a shard is listed twice.
absl::StatusOr<EnergonSplit> ReadEnergonSplit(const std::string& folder, const std::string& split,
                                              const std::string& split_config);

}  // namespace evenkeel::cli
