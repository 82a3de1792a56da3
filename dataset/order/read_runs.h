// Which bytes of a shard are read soon after one another, in an order of blocks: those of the block's samples. A source of
// far objects fetches them together (ByteRange).
//
// Thread safety: const members may be called from many threads. No part of a stream: reading is the same without.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/job.h"
#include "core/words.h"
#include "dataset/index/index.h"
#include "dataset/order/recent_windows.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

class ReadRuns {
 public:
  // `index` must outlive them.
  ReadRuns(const Job& job, const Index& index);

  // Adds to a range that a draw reads the run that it belongs to; none if the order has no blocks, the shard is a file
  // of this machine, or the range is not of the shard.
  void AddTo(const SampleRef& ref, const std::string& shard_path, ByteRange& range) const;

 private:
  // Of a block, the part in one shard.
  struct Run {
    std::string shard_path;
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  absl::StatusOr<Run> RunOf(const SampleRef& ref, const std::string& shard_path) const;
  // Of the rows from `row` towards `last`, which may be below it, the furthest that is in the same shard.
  absl::StatusOr<SamplePlaces> FurthestIn(const std::string& shard_path, uint32_t dataset, uint64_t row,
                                          uint64_t last) const;

  const OrderSpec order_;
  const Index& index_;
  mutable RecentWindows<Run> recent_;
};

}  // namespace evenkeel::dataset
