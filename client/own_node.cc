// Compares addresses as bytes, since an IPv6 address can be written in several ways.
#include "client/own_node.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace evenkeel::client {
namespace {

constexpr unsigned char kLoopbackNet = 127;

// Bytes in network order; empty: no address.
std::string BytesOf(const std::string& address) {
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) {
    return std::string(reinterpret_cast<const char*>(&v4), sizeof(v4));
  }
  in6_addr v6{};
  if (inet_pton(AF_INET6, address.c_str(), &v6) == 1) {
    return std::string(reinterpret_cast<const char*>(&v6), sizeof(v6));
  }
  return "";
}

std::string BytesOf(const sockaddr* address) {
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    const in_addr& v4 = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    return std::string(reinterpret_cast<const char*>(&v4), sizeof(v4));
  }
  if (address->sa_family != AF_INET6) return "";
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return std::string(reinterpret_cast<const char*>(&v6), sizeof(v6));
}

struct FreeAddresses {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

}  // namespace

OwnNode::OwnNode(const std::set<std::string>& addresses) {
  for (const std::string& address : addresses) {
    if (std::string bytes = BytesOf(address); !bytes.empty()) addresses_.insert(std::move(bytes));
  }
}

OwnNode OwnNode::OfThisProcess() {
  std::set<std::string> named;
  if (const char* list = std::getenv(kNodeAddressVariable); list != nullptr) {
    for (absl::string_view one : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
      named.insert(std::string(absl::StripAsciiWhitespace(one)));
    }
  }
  OwnNode own(named);
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return own;
  const std::unique_ptr<ifaddrs, FreeAddresses> list(raw);
  for (const ifaddrs* one = raw; one != nullptr; one = one->ifa_next) {
    if (std::string bytes = BytesOf(one->ifa_addr); !bytes.empty()) own.addresses_.insert(std::move(bytes));
  }
  return own;
}

bool OwnNode::Has(std::string_view endpoint) const {
  std::string host(endpoint.substr(0, endpoint.rfind(':')));
  if (host == "localhost") return !addresses_.empty();
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const std::string bytes = BytesOf(host);
  const bool is_loopback =
      bytes.size() == sizeof(in_addr) && static_cast<unsigned char>(bytes[0]) == kLoopbackNet;
  return is_loopback ? !addresses_.empty() : addresses_.contains(bytes);
}

}  // namespace evenkeel::client
