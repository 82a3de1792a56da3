// Finds the network interfaces of this machine that lead to given endpoints, and its RDMA ports.
//
// Thread safety: functions without state. They may wait for a name lookup.
#pragma once

#include <string>
#include <vector>

namespace evenkeel::transport {

// The names of the interfaces that this machine would use to reach the endpoints ("host:port", addresses or
// names), sorted and distinct. Endpoints that cannot be resolved or have no route are skipped. Nothing is
// sent.
std::vector<std::string> InterfacesTowards(const std::vector<std::string>& endpoints);

// UCX's names of the RDMA ports ("mlx5_0:1"), sorted.
std::vector<std::string> RdmaPorts();

}  // namespace evenkeel::transport
