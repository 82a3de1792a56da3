// What the kernel reports about RDMA devices, for messages that name a device and what to set.
//
// UCX 1.13 chooses the GID (the address) of a RoCE port by itself and does not report it. So its rule is
// repeated here, on the same files in sysfs:
//
//   DescribeRdmaLane("rc_verbs/rxe0:1")
//   -> device rxe0, port 1, GID index 1 (::ffff:10.9.0.1, RoCE v2); its other
//      GIDs: 0 (fe80::5054:..., RoCE v2)
//
// Reads only; missing or malformed entries are left out of the text. `sysfs` is for tests.
//
// Thread safety: functions without state.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel::transport {

inline constexpr std::string_view kRdmaSysfs = "/sys/class/infiniband";

struct Gid {
  int index = 0;
  std::string address;  // as inet_ntop writes it
  bool ipv4 = false;    // IPv4-mapped
  bool v2 = false;      // RoCE v2, carried over UDP; else RoCE v1 or InfiniBand
};

struct RdmaPort {
  std::string device;  // "mlx5_0"
  int port = 1;
};

// The port of a UCX lane such as "rc_verbs/rxe0:1"; nullopt if the lane is not on an RDMA device.
std::optional<RdmaPort> RdmaPortOfLane(std::string_view lane);

// The port's GIDs in use, in ascending order of their indices.
std::vector<Gid> GidsOf(const RdmaPort& port, std::string_view sysfs = kRdmaSysfs);

// The GID that UCX chooses for a RoCE port: UCX_IB_GID_INDEX if that is a number (`wanted`, may be null),
// else RoCE v2 before v1, then IPv4 before IPv6, then the lowest index. nullopt if none fits.
std::optional<Gid> ChosenGid(const std::vector<Gid>& gids, const char* wanted);

// Names device, port and, for RoCE, the GID in use and the others.
std::string DescribeRdmaLane(std::string_view lane, std::string_view sysfs = kRdmaSysfs);

// True if the driver of every RDMA device of this machine is mlx5. False if there is no device.
bool OnlyMlx5Devices(std::string_view sysfs = kRdmaSysfs);

}  // namespace evenkeel::transport
