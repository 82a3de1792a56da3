// Binds and listens: getaddrinfo for names, both IP families for wildcards, stale Unix sockets replaced.
#include "server/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::server {
namespace {

constexpr int kBacklog = 4096;  // the kernel reduces it to net.core.somaxconn
// How long sent bytes may wait for their acknowledgement. Equal to the timeout of gRPC's keepalive.
constexpr unsigned kUserTimeoutMillis = 5'000;

struct HostPort {
  std::string host;
  std::string port;
};

absl::StatusOr<HostPort> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", address, "' is not host:port, with a port from 0 to 65535"));
  }
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return HostPort{host, absl::StrCat(port)};
}

absl::Status CannotListen(const std::string& address, int error) {
  const std::string what = absl::StrCat("cannot listen on ", address, ": ");
  switch (error) {
    case EADDRINUSE:
      return absl::AlreadyExistsError(absl::StrCat(
          what, "address already in use; stop the process that listens there, or use another port"));
    case EADDRNOTAVAIL:
      return absl::InvalidArgumentError(absl::StrCat(what, "this machine does not have this address"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(what, std::strerror(error),
                       "; this user lacks the permission for ports below 1024 or for this folder"));
    default:
      return absl::UnavailableError(absl::StrCat(what, std::strerror(error)));
  }
}

void SetOption(int socket, int level, int name, int value) {
  (void)setsockopt(socket, level, name, &value, sizeof(value));
}

// 0, or errno.
int BindAndListen(int socket, const sockaddr* address, socklen_t size) {
  if (bind(socket, address, size) != 0) return errno;
  return listen(socket, kBacklog) == 0 ? 0 : errno;
}

struct Bound {
  Handle socket;
  int error = 0;  // errno
};

Bound BindTcp(const sockaddr* address, socklen_t size, bool both_families) {
  Handle socket(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return {.error = errno};
  SetOption(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // connections in TIME_WAIT do not block the port
  if (address->sa_family == AF_INET6) {
    SetOption(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, both_families ? 0 : 1);
  }
  // Accepted connections inherit both options.
  SetOption(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMillis);
  if (const int error = BindAndListen(socket.get(), address, size); error != 0) return {.error = error};
  return {.socket = std::move(socket)};
}

uint16_t PortOf(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

void SetPort(sockaddr* address, uint16_t port) {
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  }
}

bool IsWildcard(const sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  }
  return reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr == htonl(INADDR_ANY);
}

// The gRPC target by which this machine reaches a listener on `address`.
std::string DialTarget(const sockaddr* address, uint16_t port) {
  if (IsWildcard(address)) return absl::StrCat("ipv4:127.0.0.1:", port);
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof(text));
    return absl::StrCat("ipv6:[", text, "]:", port);
  }
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  return absl::StrCat("ipv4:", text, ":", port);
}

// [::] accepts IPv4, too, unless the machine forbids it. A machine without IPv6 gets 0.0.0.0.
Bound BindWildcard(uint16_t port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(port);
  Bound both = BindTcp(reinterpret_cast<const sockaddr*>(&any6), sizeof(any6), true);
  if (both.error != EAFNOSUPPORT && both.error != EADDRNOTAVAIL) return both;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  return BindTcp(reinterpret_cast<const sockaddr*>(&any), sizeof(any), false);
}

absl::StatusOr<Listener> ListenTcp(const std::string& address) {
  EVENKEEL_ASSIGN_OR_RETURN(const HostPort place, Split(address));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(place.host.c_str(), place.port.c_str(), &hints, &found); code != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on ", address, ": '", place.host, "': ", gai_strerror(code)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  Listener listener;
  uint16_t port = 0;
  int error = EADDRNOTAVAIL;
  for (addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
    if (port != 0) SetPort(one->ai_addr, port);  // all addresses share the port that the first one got
    const bool wildcard = IsWildcard(one->ai_addr);
    Bound bound = wildcard ? BindWildcard(ntohs(reinterpret_cast<sockaddr_in*>(one->ai_addr)->sin_port))
                           : BindTcp(one->ai_addr, one->ai_addrlen, false);
    if (bound.error != 0) {
      error = bound.error;
      if (error == EADDRINUSE) return CannotListen(address, error);
      continue;  // a name may have addresses that this machine lacks, such as [::1]
    }
    port = PortOf(bound.socket.get());
    if (listener.dial.empty()) listener.dial = DialTarget(one->ai_addr, port);
    listener.sockets.push_back(std::move(bound.socket));
    if (wildcard) break;
  }
  if (listener.sockets.empty()) return CannotListen(address, error);
  listener.address = absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
  return listener;
}

// True if the path is a Unix socket without a listener, as a killed process leaves it.
bool IsStale(const sockaddr_un& address) {
  struct stat status {};
  if (lstat(address.sun_path, &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  const Handle socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
         errno == ECONNREFUSED;
}

absl::StatusOr<Listener> ListenUnix(const std::string& name) {
  std::string path = name.substr(std::strlen("unix:"));
  if (absl::StartsWith(path, "//")) path = path.substr(2);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on ", name, ": the path must have 1 to ",
                                                   sizeof(address.sun_path) - 1, " bytes, has ",
                                                   path.size()));
  }
  path.copy(address.sun_path, path.size());
  Handle socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return CannotListen(name, errno);
  // bind gives the file these permissions: only this user can connect, whatever the umask is.
  if (fchmod(socket.get(), 0600) != 0) return CannotListen(name, errno);
  const auto* any = reinterpret_cast<const sockaddr*>(&address);
  int error = BindAndListen(socket.get(), any, sizeof(address));
  if (error == EADDRINUSE && IsStale(address) && unlink(path.c_str()) == 0) {
    error = BindAndListen(socket.get(), any, sizeof(address));
  }
  if (error != 0) return CannotListen(name, error);
  Listener listener;
  listener.sockets.push_back(std::move(socket));
  listener.address = name;
  listener.dial = absl::StrCat("unix:", path);
  listener.unix_path = path;
  return listener;
}

}  // namespace

Listener::~Listener() {
  if (!unix_path.empty()) (void)unlink(unix_path.c_str());
}

absl::StatusOr<Listener> Listen(const std::string& option, const std::string& address) {
  absl::StatusOr<Listener> listener =
      absl::StartsWith(address, "unix:") ? ListenUnix(address) : ListenTcp(address);
  if (!listener.ok()) return AddContext(listener.status(), option);
  return listener;
}

Handle OpenReserve() { return Handle(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace evenkeel::server
