// A received step as one run of bytes, for processes that take it from the one that received it: members of the same
// replica, over shared memory or a broadcast.
//
//   shared      := u64 version u64 description_bytes description padding part*
//   description := a DescribeStepReply (proto/service.proto), with the sizes of the parts that follow
//   padding     := zero bytes up to a multiple of 64; every part is a multiple of 64 long
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(SharedStep shared, SharedStep::Of(*step, PartRole::kLast));
//     std::vector<std::byte> memory(shared.num_bytes());
//     EVENKEEL_RETURN_IF_ERROR(shared.Write(memory));
//     // in the other process
//     EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<const StepData> same, ReadSharedStep(memory, owner, step->step));
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/consumer.h"
#include "core/part.h"

namespace evenkeel::client {

class SharedStep {
 public:
  // What a member with `role` receives of the step; kWhole: the step as it was received. `step` must outlive this.
  // InvalidArgument: the step was received for another role.
  static absl::StatusOr<SharedStep> Of(const StepData& step, PartRole role);

  uint64_t num_bytes() const { return num_bytes_; }
  // `out`: num_bytes(), aligned to 8.
  absl::Status Write(std::span<std::byte> out) const;

 private:
  struct Part {
    std::span<const std::byte> bytes;  // as received
    PartRole role = PartRole::kWhole;  // what is cut out of it
    uint64_t num_bytes = 0;
  };

  std::string description_;
  std::vector<Part> parts_;
  uint64_t num_bytes_ = 0;
};

// Reads the bytes, which `owner` keeps alive. DataLoss, InvalidArgument: they are not those of step `step`.
absl::StatusOr<std::shared_ptr<const StepData>> ReadSharedStep(std::span<const std::byte> bytes,
                                                               std::shared_ptr<const void> owner,
                                                               uint64_t step);

}  // namespace evenkeel::client
