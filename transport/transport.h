// Parts between machines: the data plane. One interface, UCX and gRPC behind it, one conformance suite.
//
// The sender describes (over the control plane: request id, length, hash), the receiver allocates, then bytes
// move once, into the receiver's memory. The control plane (proto/service.proto) carries addresses and
// secrets; nothing here opens a port by itself except through the control plane's server.
//
// Our deadlines decide death, not the transport's: a late receive is cancelled by closing its peer.
//
//   consumer                                      worker
//   sink = MakeSink(...)                          source = MakeSource(...)
//   sink->address()  ------ OpenSession ------->  peer = source->Connect(session, address, secret)
//   sink->Connect(session, address, secret) <---  source->address(session)
//   sink->Expect(session, 17, buffer, done)
//                    ------ RequestPart 17 --->   source->Send(session, 17, part, hash, sent)
//   done(OK)  <=========== bytes ==============   sent(OK)
//
// Thread safety: all members may be called from many threads. Callbacks run on the transport's own threads,
// never inside Expect or Send: they must not block and must not call back into the transport except
// Expect/Send. They hold no lock of the transport. Sink::Connect, Expect and Send may be called with the
// caller's locks held; Source::Connect, Cancel and Disconnect (and the destructors) wait for callbacks, so
// never with a lock that a callback takes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/digest.h"

namespace evenkeel::transport {

using SessionId = uint64_t;
using RequestId = uint64_t;
using Secret = std::array<uint8_t, 16>;
// Called exactly once, then destroyed. After it ran, the transport does not touch the buffer again.
//
// But where a network card does not give a buffer back within `completion_timeout` of its session's end, even
// though the connection was closed by force, `done` runs with the session's error and is never destroyed. So
// let it own the buffer: what it owns stays until the process ends, and whatever the card still does to it
// harms nothing. Counted by buffers_abandoned.
using Done = std::function<void(absl::Status)>;

struct Options {
  std::string name = "ucx";   // "ucx" | "grpc"
  bool require_rdma = false;  // FailedPrecondition at Make* where the transport would not be RDMA
  // ucx: everybody who reaches the data network may read and write this process's memory. Without it UCX uses
  // RDMA alone, since its TCP transport serves writes to any address from anyone who connects
  // (docs/security.md). Never set it for the user.
  bool trusted_network = false;
  bool shared_memory = false;  // ucx: opt-in for one host; peers are not watched, see docs/transport.md
  std::string devices;         // ucx: UCX_NET_DEVICES; empty: the library's choice
  // ucx over TCP, without `devices`: "host:port" of the others; it listens at the interfaces that lead there
  // and at no other. Empty: at all.
  std::vector<std::string> towards;
  // ucx over TCP: the ports that it may listen at, first and last; 0: any free one. Some to spare: a port
  // whose connections ended lately cannot be taken. A sink needs none, since nobody connects to it.
  uint16_t first_port = 0, last_port = 0;
  bool loopback_only = false;  // ucx: binds to "lo" alone; set it wherever there are no certificates
  // grpc sinks: the name that the workers' certificates carry, where endpoints are the addresses that it was
  // looked up to; empty: each endpoint's own host.
  std::string certified_name;
  absl::Duration connect_timeout = absl::Seconds(5);
  // ucx: how long after a session's end its buffers are waited for. Milliseconds are usual; past this it is a
  // fault of the card, its driver or UCX.
  absl::Duration completion_timeout = absl::Seconds(10);
  uint64_t max_message_bytes = 512ull << 20;
};

struct Info {
  std::string name;    // "ucx", "grpc"
  std::string detail;  // "tcp/eth0", "rc_mlx5/mlx5_0:1"
  bool is_rdma = false;
};

// The worker's side: sends.
class Source {
 public:
  virtual ~Source() = default;
  virtual Info info() const = 0;
  virtual std::string address() const = 0;  // opaque bytes for the control plane; empty for grpc
  // What a session's sink connects to, after Connect. The same for all, except in shared memory.
  virtual std::string address(SessionId session) const {
    (void)session;
    return address();
  }

  // Prepares to send to a consumer. Does not block on the network.
  // InvalidArgument: not an address; AlreadyExists: the session is known.
  virtual absl::Status Connect(SessionId session, const std::string& peer_address, const Secret& secret) = 0;
  // Sends one part. `bytes` must stay valid and unchanged until `done`. `done`: OK when the bytes were handed
  // over (locally complete); Unavailable: the peer is gone; DeadlineExceeded: no completion in time (the peer
  // is closed).
  virtual void Send(SessionId session, RequestId request, std::span<const std::byte> bytes,
                    const Digest& hash, absl::Duration timeout, Done done) = 0;
  // Ends a session: pending sends are completed with Cancelled before it returns. Unknown sessions are
  // ignored.
  virtual void Disconnect(SessionId session) = 0;

  // Not OK: no consumer can connect any more, and only a new source, in a new process, can be reached.
  virtual absl::Status health() const { return absl::OkStatus(); }
  // What a peer sent that names no session, or carries the wrong secret.
  virtual uint64_t messages_dropped() const { return 0; }
  // Of Send, never given back (see Done).
  virtual uint64_t buffers_abandoned() const { return 0; }
};

// The consumer's side: receives.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual Info info() const = 0;
  virtual std::string address() const = 0;

  // `endpoint` is the worker's control-plane address ("host:port"), which grpc uses; `peer_address` what the
  // worker answered in OpenSession, which ucx uses.
  virtual absl::Status Connect(SessionId session, const std::string& endpoint,
                               const std::string& peer_address, const Secret& secret) = 0;
  // Announces memory for a request before it is made. `buffer` belongs to the transport until `done`.
  // `done`: OK when `buffer` is full and its hash is the sender's; DataLoss: wrong hash or length;
  // Unavailable: the peer is gone; Cancelled; a message that fits no outstanding request is dropped and
  // counted.
  virtual void Expect(SessionId session, RequestId request, std::span<std::byte> buffer, Done done) = 0;
  // Gives up one request. If bytes are already on their way into the buffer, the session's peer is closed by
  // force so that nothing can write later; then all its requests end with Unavailable. `done` has run when
  // this returns, after little more than `completion_timeout` at the latest.
  virtual void Cancel(SessionId session, RequestId request) = 0;
  virtual void Disconnect(SessionId session) = 0;

  // Optional, for speed: tells the transport that buffers of Expect will lie in `memory`, so that it is
  // registered with the network card once, not per part. Keep it mapped until UnregisterMemory(memory) or the
  // sink's end.
  virtual absl::Status RegisterMemory(std::span<std::byte> memory) {
    (void)memory;
    return absl::OkStatus();
  }
  virtual void UnregisterMemory(std::span<std::byte> memory) { (void)memory; }

  virtual uint64_t bytes_received() const = 0;
  // Payload that arrived on a session so far, of parts that are not complete, too; 0 for unknown sessions.
  // Only grows. What a network card writes by itself is counted once its part is complete.
  virtual uint64_t bytes_arrived(SessionId session) const = 0;
  virtual uint64_t messages_dropped() const = 0;  // wrong secret, unknown request, wrong length
  // Of Expect, never given back (see Done).
  virtual uint64_t buffers_abandoned() const { return 0; }
};

}  // namespace evenkeel::transport
