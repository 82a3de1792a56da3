// Asks the kernel for routes by connecting UDP sockets, which sends nothing.
#include "transport/interfaces.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>

namespace evenkeel::transport {
namespace {

// Resolving hundreds of names would delay the start, and a few endpoints are enough to find the interfaces.
constexpr size_t kMaxEndpoints = 64;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

bool SameHost(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || b == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return std::memcmp(&reinterpret_cast<const sockaddr_in*>(a)->sin_addr,
                       &reinterpret_cast<const sockaddr_in*>(b)->sin_addr, sizeof(in_addr)) == 0;
  }
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

// The interface that has the address; empty if there is none.
std::string InterfaceOf(const sockaddr* address) {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return "";
  const std::unique_ptr<ifaddrs, FreeAddresses> list(raw);
  for (const ifaddrs* one = raw; one != nullptr; one = one->ifa_next) {
    if (SameHost(one->ifa_addr, address)) return one->ifa_name;
  }
  return "";
}

// The interface of this machine's own address on the route to `there`; empty without a route.
std::string RouteTo(const addrinfo& there) {
  const int descriptor = socket(there.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return "";
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  const bool found = connect(descriptor, there.ai_addr, there.ai_addrlen) == 0 &&
                     getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &length) == 0;
  close(descriptor);
  return found ? InterfaceOf(reinterpret_cast<const sockaddr*>(&own)) : "";
}

}  // namespace

std::vector<std::string> InterfacesTowards(const std::vector<std::string>& endpoints) {
  std::set<std::string> names;
  for (size_t i = 0; i < endpoints.size() && i < kMaxEndpoints; ++i) {
    const size_t colon = endpoints[i].rfind(':');
    if (colon == std::string::npos) continue;
    std::string host = endpoints[i].substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* raw = nullptr;
    if (getaddrinfo(host.c_str(), endpoints[i].substr(colon + 1).c_str(), &hints, &raw) != 0) continue;
    const std::unique_ptr<addrinfo, FreeAddresses> list(raw);
    for (const addrinfo* one = raw; one != nullptr; one = one->ai_next) {
      if (const std::string name = RouteTo(*one); !name.empty()) names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> RdmaPorts() {
  std::set<std::string> found;
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    std::error_code ignored;
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", ignored)) {
      found.insert(device.path().filename().string() + ":" + port.path().filename().string());
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace evenkeel::transport
