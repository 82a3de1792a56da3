// Removes files of an index folder that are no longer needed. Every change of shards, limits or processor
// leaves the previous index's files, because a running worker may still read them.
//
// Thread safety: a plain function; nothing may build an index in the same folder meanwhile.
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

// Removes columns that the folder's `current` does not name, the remains of an interrupted run, and step
// tables that do not belong to this job with the present index (`processor` as in Index::Open; the tables of
// another job are made again when it needs them). Columns for other processors and datasets of other jobs are
// kept. No worker that was started with an older index may still run. Errors as Index::Open;
// PermissionDenied, Unavailable.
absl::StatusOr<PruneSummary> PruneIndex(const Job& job, const Digest& processor, ByteSource& source);

}  // namespace evenkeel::dataset
