// How long a planned step takes in its pipelines, by which the planner compares ways to cut microbatches.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <vector>

#include "reorder/layout.h"
#include "reorder/pipeline/pipeline_model.h"
#include "reorder/units.h"

namespace evenkeel::reorder {

// Of the slowest llm rank, in the job's units, exactly as schedules run (pipeline_schedule.h). Every sample and item has its
// rank and microbatch. An encoder in the pipeline takes the time of the batch on the llm rank's own rank; one that has no
// such rank that of its busiest rank, for which the llm has to wait. Encoders that do not run in the pipeline are left out.
double PipelineStepTime(const PipelineModel& model, const Layout& layout,
                        const std::vector<EncoderUnits>& encoders, uint32_t num_microbatches,
                        const LlmUnits& llm);

}  // namespace evenkeel::reorder
