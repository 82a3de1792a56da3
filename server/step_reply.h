// Describes a plan from one global rank's point of view, as messages of the control plane. Translation only.
//
// A reply's time and size depend on the rank's own parts and routes; what all ranks share is computed once
// with the plan.
//
// Thread safety: pure functions.
#pragma once

#include <memory>
#include <span>

#include "absl/status/status.h"
#include "server/part_pool.h"
#include "stream/part_builder.h"
#include "stream/stream.h"

namespace evenkeel::pb {
class DescribeReply;
class DescribeStepReply;
class DescribeStepRequest;
}  // namespace evenkeel::pb

namespace evenkeel::server {

// Fills the reply. `plans`: of the step; with dynamic groups also of the next steps, whose groups the reply names.
// InvalidArgument: the job has no such rank; FailedPrecondition: a part does not fit into
// the worker's budget or into a message of `max_part_bytes` (with sizes).
absl::Status DescribeStep(const stream::Stream& stream, const stream::PartBuilder& builder,
                          const PartPool& pool, uint64_t max_part_bytes,
                          std::span<const std::shared_ptr<const stream::StepPlan>> plans,
                          const pb::DescribeStepRequest& request, pb::DescribeStepReply& reply);

// Fills the fields that describe the stream: job, digests, phases.
void DescribeStream(const stream::Stream& stream, pb::DescribeReply& reply);

}  // namespace evenkeel::server
