// Which network interfaces of this machine lead to others, and which RDMA ports it has.
//
// Thread safety: functions without state. They may wait for a name look-up.
#pragma once

#include <string>
#include <vector>

namespace evenkeel::transport {

// The names of the interfaces whose address this machine would use to reach these ("host:port", numbers or
// names), sorted, each once. Endpoints that cannot be looked up or have no route are left out. Nothing is
// sent.
std::vector<std::string> InterfacesTowards(const std::vector<std::string>& endpoints);

// "mlx5_0:1", as UCX names them, sorted.
std::vector<std::string> RdmaPorts();

}  // namespace evenkeel::transport
