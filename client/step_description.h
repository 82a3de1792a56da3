// What one rank receives in one step, validated: the plain form of DescribeStepReply.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/consumer.h"

namespace evenkeel::pb {
class DescribeStepReply;
}  // namespace evenkeel::pb

namespace evenkeel::client {

struct PlannedPart {
  PartName name;
  uint64_t bytes = 0;
  PartRole role = PartRole::kWhole;
};

struct StepDescription {
  uint64_t step = 0;
  uint32_t num_microbatches = 0;
  uint64_t loss_tokens = 0;
  uint64_t num_samples = 0;
  std::vector<PlannedPart> parts;  // in canonical order
  std::vector<LocalRoute> routes;
  std::vector<PhaseLoads> loads;
  StepGroups groups;
};

// Validates a worker's reply before any memory is taken for it. InvalidArgument if the reply is for another
// step, names an unknown phase, is out of canonical order, has a route that points outside its own rows or
// ranks, or groups that are not one for each microbatch.
absl::StatusOr<StepDescription> CheckDescription(const pb::DescribeStepReply& reply, uint64_t step);

}  // namespace evenkeel::client
