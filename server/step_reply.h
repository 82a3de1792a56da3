// A plan as one global rank sees it, in the words of the control plane. Translation only.
//
// A reply takes time and bytes for the rank's own parts and routes; what all ranks share is computed once
// with the plan.
//
// Thread safety: pure functions.
#pragma once

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

// Fills the reply. InvalidArgument: the job has no such rank; FailedPrecondition: a part does not fit into
// the worker's budget or into a message of `max_part_bytes`, with sizes.
absl::Status DescribeStep(const stream::Stream& stream, const stream::PartBuilder& builder,
                          const PartPool& pool, uint64_t max_part_bytes,
                          const std::shared_ptr<const stream::StepPlan>& plan,
                          const pb::DescribeStepRequest& request, pb::DescribeStepReply& reply);

// The stream's half of a reply: job, digests, phases.
void DescribeStream(const stream::Stream& stream, pb::DescribeReply& reply);

}  // namespace evenkeel::server
