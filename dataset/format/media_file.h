// Media that a row names as files: from the name in the data to a file below the dataset's folder of media.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/job.h"

namespace evenkeel::dataset {

// Reasons of exclusions (docs/datasets.md).
inline constexpr std::string_view kMissingMedia = "missing media";
inline constexpr std::string_view kUnusableName = "unusable name of a medium";

// Whether items may be files of their own, named by the shard's rows.
inline bool MediaAreFiles(const DatasetSpec& dataset) {
  return dataset.format == DataFormat::kJson || dataset.format == DataFormat::kParquet ||
         dataset.format == DataFormat::kMds;
}

// Whether what a shard contains also depends on other files: media, or the .idx of megatron.
inline bool HasOtherFiles(const DatasetSpec& dataset) {
  return MediaAreFiles(dataset) || dataset.format == DataFormat::kMegatron;
}

// The folder that media of the shard at `shard_path` are in: the job's, else that of the shard.
std::string MediaFolder(const DatasetSpec& dataset, std::string_view shard_path);

// `name` relative to `folder`, without "./" and repeated slashes. An absolute path (or a file:// address) is accepted
// if it is below `folder`. InvalidArgument: empty, another address (http://, data:), "..", a control character, not
// UTF-8, longer than 4096 bytes, or outside `folder`; the message has the name.
absl::StatusOr<std::string> RelativeMediaName(std::string_view name, std::string_view folder);

// The path of a file of `folder` for ByteSource, which then follows no symbolic link out of `folder`.
std::string MediaPath(std::string_view folder, std::string_view relative_name);

// The suffix for bytes of a medium whose name has none ("jpg", "mp4", "wav", ...), by their first bytes; empty:
// unknown.
std::string_view SuffixOfBytes(std::span<const std::byte> bytes);

// The part of a name after the last dot of its last component, in lower case; empty: there is none.
std::string SuffixOfName(std::string_view name);

}  // namespace evenkeel::dataset
