// The shards of a job's datasets, where the job gives what stands for them.
//
// Thread safety: a function without state.
#pragma once

#include "absl/status/status.h"
#include "core/job.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

// Replaces every address with * or ? among the job's shards by the objects that it stands for, every list of an MDS dataset
// by its shards (MdsShards), and lets the source see many shards of one folder at once. NotFound: a pattern stands for
// nothing. InvalidArgument: the same shard twice; otherwise as ByteSource::List and MdsShards.
absl::Status ListShards(ByteSource& source, Job& job);

}  // namespace evenkeel::dataset
