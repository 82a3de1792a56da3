// Sockets that listen on one address. They are created here and not by a library, so that errors name their
// cause.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(Listener listener, Listen("--listen", "0.0.0.0:7000"));
//     accept4(listener.sockets[0].get(), nullptr, nullptr, SOCK_CLOEXEC);
//     listener.address;  // "0.0.0.0:7000"; with port 0 the port that was taken
//
// Thread safety: belongs to one thread at a time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/handle.h"

namespace evenkeel::server {

struct Listener {
  Listener() = default;
  Listener(Listener&& other) noexcept
      : sockets(std::move(other.sockets)),
        address(std::move(other.address)),
        dial(std::move(other.dial)),
        unix_path(std::exchange(other.unix_path, {})) {}
  // Removes the file of a Unix socket.
  ~Listener();

  std::vector<Handle> sockets;  // non-blocking; several if a name has several addresses
  std::string address;          // as given, with the actual port
  std::string dial;             // a gRPC target on this machine: "ipv4:127.0.0.1:7000", "unix:/path"
  std::string unix_path;        // empty: TCP
};

// `address`: "host:port", "[v6]:port", or "unix:/path". Port 0 takes a free one. 0.0.0.0 and [::] listen on
// IPv4 and IPv6 if the machine has both. The port is not shared with another process. A Unix socket's file
// without a listener is replaced. `option`: its name in messages.
//
// InvalidArgument: not an address, an unknown name, or not an address of this machine; AlreadyExists: in use;
// PermissionDenied: this user may not use the port or path; Unavailable: any other failure.
absl::StatusOr<Listener> Listen(const std::string& option, const std::string& address);

// A handle that serves no purpose, for an accept loop to close when the process has none left to accept with.
Handle OpenReserve();

}  // namespace evenkeel::server
