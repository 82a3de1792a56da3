// Takes away what an index folder has and nothing needs any more. Every change of shards, limits or processor
// leaves the files of the index before behind, since a running worker may still read them.
//
// Thread safety: a plain function; nobody may make an index in the same folder meanwhile.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/job.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

struct PruneSummary {
  uint64_t files = 0;
  uint64_t bytes = 0;
};

// Removes columns that the folder's `current` does not name, what an interrupted run left, and step tables
// that are not those of this job with the index as it is (`processor` as in Index::Open; another job's tables
// are made again when they are needed). Columns for other processors and datasets of other jobs stay. A
// worker that was started with an older index must not run any more. Errors as Index::Open; PermissionDenied,
// Unavailable.
absl::StatusOr<PruneSummary> PruneIndex(const Job& job, const Digest& processor, ByteSource& source);

}  // namespace evenkeel::dataset
