// Chooses the consumer's data plane among what the workers offer.
// Thread safety: a function without state.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/consumer.h"
#include "transport/transport.h"

namespace evenkeel {

// `offered`: the workers' transports in their order of preference. "auto" takes the first that works here.
// `certified_name`: see ControlPlane::Make.
// FailedPrecondition: the transport asked for is not offered, or require_rdma cannot be met.
absl::StatusOr<std::unique_ptr<transport::Sink>> MakeSink(const ConsumerOptions& options,
                                                          const std::vector<std::string>& offered,
                                                          const std::string& certified_name);

}  // namespace evenkeel
