// Chooses the consumer's data plane among what the workers offer.
// Thread safety: a function without state.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/consumer.h"
#include "transport/credentials.h"
#include "transport/transport.h"

namespace evenkeel::client {

// `offered`: the workers' transports in their order of preference. "auto" takes the first that works here;
// UCX without RDMA works only with ConsumerOptions::trusted_data_network, whatever the workers offer. If they
// offer sealed memory, "auto" uses it for those of this machine, in addition to the transport for the rest.
// `certified_name`: see ControlPlane::Make. `endpoints`: the workers', as far as they are known; UCX over TCP
// uses the interfaces that lead to them unless ConsumerOptions::devices names some.
// `certificates`: null where there are none.
// FailedPrecondition: the transport asked for is not offered, needs a trusted network, or require_rdma
// cannot be met.
absl::StatusOr<std::unique_ptr<transport::Sink>> MakeSink(
    const ConsumerOptions& options, const std::shared_ptr<transport::Certificates>& certificates,
    const std::vector<std::string>& offered, const std::string& certified_name,
    const std::vector<std::string>& endpoints);

}  // namespace evenkeel::client
