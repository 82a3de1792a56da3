// Parses the data plane's port range and checks that UCX can bind in it.
#include "transport/ports.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace evenkeel::transport {
namespace {

constexpr int kFirstUserPort = 1024, kLastPort = 65535;

// Binds as UCX does: without SO_REUSEADDR.
bool CanListenAt(uint16_t port) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  const bool can = bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(descriptor);
  return can;
}

}  // namespace

absl::StatusOr<std::pair<uint16_t, uint16_t>> ParsePorts(const std::string& text) {
  const std::vector<std::string> ends = absl::StrSplit(text, '-');
  int first = 0;
  int last = 0;
  if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &first) || !absl::SimpleAtoi(ends[1], &last) ||
      first < kFirstUserPort || last > kLastPort || last - first + 1 < kMinPorts) {
    return absl::InvalidArgumentError(absl::StrCat("data ports '", text, "': expected a range of at least ",
                                                   kMinPorts, " ports from ", kFirstUserPort, " to ",
                                                   kLastPort, ", e.g. 7100-7131"));
  }
  return std::pair<uint16_t, uint16_t>(first, last);
}

absl::Status CheckFreePorts(uint16_t first, uint16_t last) {
  int free = 0;
  for (int port = first; port <= last && free < 2; ++port) {
    if (CanListenAt(static_cast<uint16_t>(port))) ++free;
  }
  if (free >= 2) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("UCX needs two free ports of ", first, " to ", last, ", and ", free,
                   " can be bound (ports of connections that ended in the last minute cannot); give a "
                   "larger range with --data-ports"));
}

}  // namespace evenkeel::transport
