// Compressed objects, decompressed once as a whole into a file without a name, and read from there by ranges.
//
// A compressed object has no ranges that could be read by themselves. So what is inside has a path of its own
// (ContentOf), and whoever first reads from it decompresses all of it; others who want the same meanwhile wait. The object
// itself is read under its own path as ever, which is how the index pins its size, ETag and digest.
//
// Bounds: all files together keep within a budget, from which those that were read longest ago are closed first; one object
// may take a quarter of it, so that neither a decompression bomb nor a large shard fills the disk; four are decompressed at
// a time; a thread waits for another only while that one makes progress. The files are unlinked while they are open, so that
// the kernel frees them with the process, however it ends.
//
// Example:
//     std::unique_ptr<ByteSource> source = MakeUnpackingSource(MakeFileSource(), {});
//     absl::StatusOr<uint64_t> packed = source->Size("a.tar.gz");           // of the compressed object
//     absl::Status read = source->ReadAt(ContentOf("a.tar.gz"), 512, out);  // from what is inside
//
// Thread safety: as ByteSource.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

// Whether the object's name ends like that of a compressed one.
bool IsPacked(const std::string& shard);
// Where the bytes of samples in `shard` are: `shard` itself unless it is packed.
std::string ContentOf(const std::string& shard);

struct UnpackOptions {
  std::string folder;                           // of the files; empty: TMPDIR, else /tmp
  uint64_t budget_bytes = 32ull << 30;          // of all of them
  absl::Duration patience = absl::Seconds(60);  // of a thread that waits, without progress
};

// Of paths of ContentOf, Size and ReadAt return in addition DataLoss: the compressed data are damaged; ResourceExhausted,
// a failure of the machine: an object beyond its share of the budget; Unavailable: the disk is full, or no progress.
std::unique_ptr<ByteSource> MakeUnpackingSource(std::unique_ptr<ByteSource> files,
                                                const UnpackOptions& options);

}  // namespace evenkeel::dataset
