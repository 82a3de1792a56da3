// A job's microbatches as a pipeline: their cost on every stage, and renumbering them in a better order.
//
// The schedules are in pipeline_schedule.h, the algorithms in microbatch_order.h.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/job.h"
#include "reorder/pipeline/microbatch_order.h"
#include "reorder/units.h"

namespace evenkeel::reorder {

// A backward pass takes twice its forward's time: gradients of the input and of the weights.
inline constexpr double kBackwardOverForward = 2;

// interleaved_1f1b if the job has virtual stages, else 1f1b.
PipelineSchedule ScheduleOf(const Job& job);

// Cuts the layers of an encoder, followed by those of the llm, into stages * virtual_stages chunks that take
// the same time for the mean microbatch (as OmniBal cuts by profile). `encoder` and `llm` are forward times
// of whole microbatches, [microbatches] each.
PipelineProblem CutIntoStages(const Job& job, std::span<const double> encoder, std::span<const double> llm);

// Renumbers the microbatches of every llm rank by an algorithm of microbatch_order.h, before items have
// ranks. Each rank is ordered separately; items of an encoder that runs once per microbatch are balanced
// within their new index afterwards. The ranks share `order.iterations`; its pipeline is filled in here.
// InvalidArgument: see OrderMicrobatches.
absl::Status OrderForPipeline(const Job& job, const Layout& layout, const std::vector<EncoderUnits>& encoders,
                              OrderProblem order, uint32_t num_microbatches, LlmUnits& llm);

}  // namespace evenkeel::reorder
