// Reads devices, ports and GIDs from sysfs (Linux, Documentation/ABI/stable/sysfs-class-infiniband).
#include "transport/rdma_device.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace evenkeel::transport {
namespace {

namespace fs = std::filesystem;

// A bound for the loop: the InfiniBand specification's table length has 16 bits, and cards have 256 entries.
constexpr int kMaxGids = 1024;

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

fs::path PortFolder(const RdmaPort& port, std::string_view sysfs) {
  return fs::path(std::string(sysfs)) / port.device / "ports" / std::to_string(port.port);
}

bool IsEthernet(const RdmaPort& port, std::string_view sysfs) {
  return FirstLine(PortFolder(port, sysfs) / "link_layer") == "Ethernet";
}

std::string Written(const Gid& gid) {
  return absl::StrCat(gid.index, " (", gid.address, ", RoCE v", gid.v2 ? 2 : 1, ")");
}

}  // namespace

std::optional<RdmaPort> RdmaPortOfLane(std::string_view lane) {
  for (std::string_view transport : {"rc_", "dc_", "ud_"}) {
    if (lane.substr(0, transport.size()) != transport) continue;
    size_t slash = lane.find('/');
    size_t colon = lane.rfind(':');
    if (slash == lane.npos || colon == lane.npos || colon <= slash + 1) return std::nullopt;
    RdmaPort port{std::string(lane.substr(slash + 1, colon - slash - 1)), 0};
    if (!absl::SimpleAtoi(std::string(lane.substr(colon + 1)), &port.port)) return std::nullopt;
    return port;
  }
  return std::nullopt;
}

std::vector<Gid> GidsOf(const RdmaPort& port, std::string_view sysfs) {
  const fs::path folder = PortFolder(port, sysfs);
  std::vector<Gid> gids;
  for (int index = 0; index < kMaxGids; ++index) {
    const std::string text = FirstLine(folder / "gids" / std::to_string(index));
    if (text.empty()) break;
    in6_addr address;
    if (inet_pton(AF_INET6, text.c_str(), &address) != 1 || IN6_IS_ADDR_UNSPECIFIED(&address)) continue;
    // The type of an unused entry cannot be read.
    const std::string type = FirstLine(folder / "gid_attrs" / "types" / std::to_string(index));
    if (type.empty()) continue;
    std::array<char, INET6_ADDRSTRLEN> written;
    inet_ntop(AF_INET6, &address, written.data(), written.size());
    gids.push_back(
        {index, written.data(), IN6_IS_ADDR_V4MAPPED(&address) != 0, absl::StrContains(type, "v2")});
  }
  return gids;
}

std::optional<Gid> ChosenGid(const std::vector<Gid>& gids, const char* wanted) {
  int index;
  if (wanted != nullptr && absl::SimpleAtoi(wanted, &index)) {
    auto found = std::find_if(gids.begin(), gids.end(), [&](const Gid& gid) { return gid.index == index; });
    return found == gids.end() ? std::nullopt : std::optional(*found);
  }
  auto rank = [](const Gid& gid) { return (gid.v2 ? 0 : 2) + (gid.ipv4 ? 0 : 1); };
  auto best = std::min_element(gids.begin(), gids.end(),
                               [&](const Gid& a, const Gid& b) { return rank(a) < rank(b); });
  return best == gids.end() ? std::nullopt : std::optional(*best);
}

std::string DescribeRdmaLane(std::string_view lane, std::string_view sysfs) {
  std::optional<RdmaPort> port = RdmaPortOfLane(lane);
  if (!port) return std::string(lane);
  std::string text = absl::StrCat("device ", port->device, ", port ", port->port);
  if (!IsEthernet(*port, sysfs)) return text;
  const char* wanted = std::getenv("UCX_IB_GID_INDEX");
  const std::vector<Gid> gids = GidsOf(*port, sysfs);
  const std::optional<Gid> chosen = ChosenGid(gids, wanted);
  if (chosen) {
    absl::StrAppend(&text, ", GID index ", Written(*chosen));
  } else {
    absl::StrAppend(&text, ", GID index ", wanted == nullptr ? "none" : wanted,
                    " (the port has no such GID; is its network interface up?)");
  }
  std::string others;
  for (const Gid& gid : gids) {
    if (chosen && gid.index == chosen->index) continue;
    absl::StrAppend(&others, others.empty() ? "" : ", ", Written(gid));
  }
  if (!others.empty()) absl::StrAppend(&text, "; its other GIDs: ", others);
  return text;
}

bool OnlyMlx5Devices(std::string_view sysfs) {
  std::error_code error;
  bool any = false;
  for (const fs::directory_entry& device : fs::directory_iterator(fs::path(std::string(sysfs)), error)) {
    any = true;
    const fs::path driver = fs::read_symlink(device.path() / "device" / "driver", error);
    if (error || !absl::StartsWith(driver.filename().string(), "mlx5")) return false;
  }
  return any;
}

}  // namespace evenkeel::transport
