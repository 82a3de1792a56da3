// What one rank receives for one step, checked: the plain form of DescribeStepReply.
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
};

struct StepDescription {
  uint64_t step = 0;
  uint32_t num_microbatches = 0;
  uint64_t loss_tokens = 0;
  uint64_t num_samples = 0;
  std::vector<PlannedPart> parts;  // in canonical order
  std::vector<LocalRoute> routes;
  std::vector<PhaseLoads> loads;
};

// InvalidArgument where the reply is for another step, names an unknown phase, is out of canonical order, or
// has a route that points outside its own rows or ranks. A worker's word is checked before memory is taken
// for it.
absl::StatusOr<StepDescription> CheckDescription(const pb::DescribeStepReply& reply, uint64_t step);

}  // namespace evenkeel::client
