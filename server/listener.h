// Sockets that listen at one address, made here and not by a library, so that errors have their cause.
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

  std::vector<Handle> sockets;  // not blocking; several where a name has several addresses
  std::string address;          // as asked for, with the port that was really taken
  std::string dial;             // a gRPC target on this machine: "ipv4:127.0.0.1:7000", "unix:/path"
  std::string unix_path;        // empty: TCP
};

// `address`: "host:port", "[v6]:port", or "unix:/path". Port 0 takes a free one. 0.0.0.0 and [::] listen on
// IPv4 and IPv6 where the machine has both. No port is shared with another process. The file of a Unix socket
// on which nobody listens is replaced. `option`: what messages call it.
//
// InvalidArgument: not an address, a name that is not known, or not an address of this machine;
// AlreadyExists: in use; PermissionDenied: the port or path is not this user's to take; Unavailable: anything
// else.
absl::StatusOr<Listener> Listen(const std::string& option, const std::string& address);

// A handle of no other use, for an accept loop to give up when the process has none left to accept with.
Handle OpenReserve();

}  // namespace evenkeel::server
