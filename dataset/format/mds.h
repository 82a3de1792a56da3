// Samples of MDS shards (dataset/format/mds_shard.h), and the addresses by which the index finds their texts.
//
// Media are ranges of the shard like those of a tar. The text of a row is no range: it is made of the sample's columns.
// So its place is an address (dataset/source/mds_address.h), which MakeMdsSource reads like an offset: where the sample begins, and how many of its bytes
// the text is made of, so that they are read, or fetched ahead, at once.
//
// Thread safety: a scanner belongs to one thread; the source may be used from many.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/job.h"
#include "dataset/format/sample_scanner.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

// The key of a sample is its number in the shard, from 0. Next returns in addition InvalidArgument: a column that rows are
// made of has an encoding that is not read.
std::unique_ptr<SampleScanner> MakeMdsScanner(const DatasetSpec& dataset, ByteSource& source,
                                              const std::string& path, uint64_t size, const Limits& limits);

// `files`, and in addition texts of MDS shards by their addresses. The columns of some shards are kept.
std::unique_ptr<ByteSource> MakeMdsSource(std::unique_ptr<ByteSource> files);

}  // namespace evenkeel::dataset
