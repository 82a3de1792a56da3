// The Unix sockets over which parts are handed over as sealed memory, and their messages.
//
//   sink -> source   kHello   session, secret
//   source -> sink   kReady   session, secret; parts may follow
//   source -> sink   kPart    all fields, and the descriptor of the sealed memory in the same message
//   sink -> source   kTaken   session, request, secret; the sink has the part, or dropped it
//
// A connection belongs to one session; closing it ends the session for both. Messages have a fixed size
// (SOCK_SEQPACKET keeps their boundaries), and both sides are processes of one machine and one release.
//
// Sockets have abstract names: no file that could remain, and reachable for the processes of this network
// namespace. Any user may connect to such a name, so the peer's user is asked of the kernel (CheckPeer).
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/digest.h"
#include "core/handle.h"
#include "transport/transport.h"

namespace evenkeel::transport {

enum class MemoryMessageKind : uint32_t { kHello = 1, kReady = 2, kPart = 3, kTaken = 4 };

struct MemoryMessage {
  MemoryMessageKind kind = MemoryMessageKind::kHello;
  SessionId session = 0;
  RequestId request = 0;
  uint64_t length = 0;  // of the part, in bytes
  Digest hash;          // of the part
  Secret secret{};
};

struct ReceivedMessage {
  MemoryMessage message;
  std::vector<Handle> handles;
};

// A listening socket with a random name. ResourceExhausted: no file handle left; Unavailable: no Unix sockets
// here.
absl::StatusOr<Handle> ListenForMemory(std::string* name);
// A connected socket. Unavailable: nobody listens at the name in this network namespace.
absl::StatusOr<Handle> DialForMemory(const std::string& name);
// PermissionDenied unless the peer runs as the user of this process, root included: so both sides agree.
absl::Status CheckPeer(int socket);

// Sends the message, with `handle` unless that is negative. Returns false if there is no room now.
// Unavailable: the peer is gone.
absl::StatusOr<bool> SendMessage(int socket, const MemoryMessage& message, int handle = -1);
// Returns nullopt if no message is there. Unavailable: the peer is gone; InvalidArgument: it sent something
// else; its descriptors are closed.
absl::StatusOr<std::optional<ReceivedMessage>> ReceiveMessage(int socket);

}  // namespace evenkeel::transport
