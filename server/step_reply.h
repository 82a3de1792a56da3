// A plan as one global rank sees it, in the words of the control plane. Translation only.
//
// Thread safety: pure functions.
#pragma once

#include "absl/status/status.h"
#include "server/part_builder.h"
#include "server/part_pool.h"
#include "server/stream.h"

namespace evenkeel::pb {
class DescribeReply;
class DescribeStepReply;
}  // namespace evenkeel::pb

namespace evenkeel {

// Fills the reply. InvalidArgument: the job has no such rank; FailedPrecondition: a part does not fit into
// the worker's budget or into a message of `max_part_bytes`, with sizes.
absl::Status DescribeStep(const Stream& stream, const PartBuilder& builder, const PartPool& pool,
                          uint64_t max_part_bytes, const std::shared_ptr<const StepPlan>& plan,
                          uint32_t global_rank, pb::DescribeStepReply& reply);

// The stream's half of a reply: job, digests, phases.
void DescribeStream(const Stream& stream, pb::DescribeReply& reply);

}  // namespace evenkeel
