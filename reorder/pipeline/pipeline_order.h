// Renumbers a job's microbatches in an order that suits its pipeline.
//
// The pipeline is that of pipeline_model.h, the schedules are in pipeline_schedule.h, the algorithms in
// microbatch_order.h.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "reorder/layout.h"
#include "reorder/pipeline/microbatch_order.h"
#include "reorder/pipeline/pipeline_model.h"
#include "reorder/units.h"

namespace evenkeel::reorder {

// Renumbers the microbatches of every llm rank by an algorithm of microbatch_order.h, before items have ranks. Items of
// an encoder that runs once per microbatch are balanced within their new index afterwards. Each rank is ordered
// separately; where encoders on ranks of their own serve all of them, one order for all ranks is tried, too, and the one
// with the shorter step is used. The ranks share `order.iterations`; its pipeline is filled in here. InvalidArgument: see
// OrderMicrobatches.
absl::Status OrderForPipeline(const PipelineModel& model, const Layout& layout,
                              const std::vector<EncoderUnits>& encoders, OrderProblem order,
                              uint32_t num_microbatches, LlmUnits& llm);

}  // namespace evenkeel::reorder
