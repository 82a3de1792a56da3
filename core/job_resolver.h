// JobFile -> Job: defaults, checks, ranges, paths. Internal to core.
// Thread safety: a pure function; needs none.
#pragma once

#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/job_loader.h"

namespace evenkeel {

// Paths become relative to the folder of the file. InvalidArgument with file and line for everything that a
// job must not say.
absl::StatusOr<Job> ResolveJob(const LoadedJobFile& file);

}  // namespace evenkeel
