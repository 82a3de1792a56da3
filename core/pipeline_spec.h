// The section `pipeline` of a job file -> PipelineSpec: checks, defaults, shares from layers. Internal to core.
// Thread safety: a pure function; needs none.
#pragma once

#include "absl/status/status.h"
#include "core/job.h"
#include "core/job_loader.h"

namespace evenkeel {

// After phases and topology. Sets `pipeline`, and with chunks pipeline_stages and virtual_stages, which then agree
// with the topology. `topology_has_stages`: the topology gives the number of stages. InvalidArgument with file and line.
absl::Status ResolvePipeline(const pb::JobFile& in, const SourceLines& lines, bool topology_has_stages,
                             Job& job);

}  // namespace evenkeel
