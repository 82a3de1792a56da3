// Which workers are on the consumer's own node. They are asked first: their bytes do not cross the network, and the cores
// are there for this node's ranks.
//
// Example:
//     const OwnNode own = OwnNode::OfThisProcess();
//     own.Has("10.0.0.7:7000");  // true where 10.0.0.7 is an address of this machine
//
// Thread safety: immutable after construction.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace evenkeel::client {

// A comma list of addresses of the node, for a process whose network is not the node's: a pod.
inline constexpr const char* kNodeAddressVariable = "EVENKEEL_NODE_ADDRESS";

class OwnNode {
 public:
  OwnNode() = default;  // no address: no worker is on it
  // "10.0.0.7", "fd00::7"; what is no address is ignored.
  explicit OwnNode(const std::set<std::string>& addresses);

  // The addresses of this machine's interfaces, loopback among them, and those of EVENKEEL_NODE_ADDRESS.
  static OwnNode OfThisProcess();

  // Of "address:port" or "[address]:port". Names are not looked up: false, except for localhost.
  bool Has(std::string_view endpoint) const;

 private:
  std::set<std::string> addresses_;  // as bytes in network order
};

}  // namespace evenkeel::client
