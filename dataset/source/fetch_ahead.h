// Reads far objects ahead of need, so that no thread that decodes waits for a byte.
//
// What will be read is announced (ByteSource::Expect). A bounded number of threads fetches it, the lowest turn first, and
// ranges of one object that are close to each other by one request. Fetched bytes wait, within a budget, for the one
// ReadAt that takes them. A range that is read before its turn came is read at once, as without an announcement, so no
// reader ever waits for the budget; and so is one whose fetching failed, so that its errors are those of the source.
//
// In an order of blocks, a range comes with the run that it is a part of (ByteRange). If the runs of a window fit into half
// of the budget, a piece of the run is fetched at once, and kept for neighbours that are announced later, as long as there
// is room. Where many workers share the data, each reads few of a piece's ranges; then ranges are fetched alone again, and a
// piece now and then, to see whether that has changed.
//
// With a cache on a disk, ranges are looked for there before they are requested, and kept there afterwards.
//
// Example:
//     std::unique_ptr<ByteSource> source = MakeFetchAheadSource(MakeStoreSource({}, MakeFileSource()), {}, nullptr);
//     std::unique_ptr<Expected> expected = source->Expect({{"s3://b/a.tar", 512, 100}}, /*turn=*/step);
//     absl::Status read = source->ReadAt("s3://b/a.tar", 512, out);  // waits only where the fetching is late
//
// Thread safety: as ByteSource. The threads start with the first announcement of an address.
#pragma once

#include <cstdint>
#include <memory>

#include "dataset/source/byte_source.h"
#include "dataset/source/disk_cache.h"

namespace evenkeel::dataset {

struct FetchAheadOptions {
  uint64_t budget_bytes =
      256ull << 20;             // requested, or fetched and not yet read; 0: nothing is fetched ahead
  uint32_t max_requests = 32;   // at a time
  uint64_t max_gap = 64 << 10;  // bytes between two ranges that one request still spans
  uint64_t max_request_bytes = 8 << 20;  // of several ranges together
  uint64_t max_piece_bytes = 16 << 20;   // of a run; more where a range crosses the piece's end
};

// Addresses are read ahead, through `source`; files of this machine as before. `cache` may be null.
std::unique_ptr<ByteSource> MakeFetchAheadSource(std::unique_ptr<ByteSource> source,
                                                 const FetchAheadOptions& options,
                                                 std::unique_ptr<DiskCache> cache);

}  // namespace evenkeel::dataset
