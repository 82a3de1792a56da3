// The datasets of Megatron-Energon's data: a prepared folder, or a metadataset, a YAML file that blends folders and other
// metadatasets.
//
// Nothing of Energon's Python is run, and what would need it is an error that names it. All files are untrusted: sizes, depth and
// the number of datasets are bounded, and a metadataset that contains itself is refused.
// Thread safety: functions without state; plain values.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/found_data.h"

namespace evenkeel::cli {

inline constexpr int kMaxMetadatasetDepth = 8;
inline constexpr size_t kMaxReferences = 2000;  // to datasets, of a metadataset with those inside it

// Whether `path` is a folder with .nv-meta, or a file that ends in .yaml.
bool IsEnergon(const std::string& path);

// The datasets of one split of `path`, with their weights, in the order of the file. A blend's weights are multiplied through nested
// metadatasets, whose own weights count relative to their sum; a repeated dataset has its repetitions, likewise multiplied.
// NotFound: a file, folder or shard is missing. InvalidArgument: with file and line, a split that does not exist, what a job cannot
// express (a join, a subset), addresses, a cycle, damaged files.
absl::StatusOr<std::vector<FoundDataset>> EnergonDatasets(const std::string& path,
                                                          const EnergonWishes& wishes);

}  // namespace evenkeel::cli
