// Parts between machines: the data plane. One interface, implementations over UCX, gRPC and sealed memory,
// one conformance suite.
//
// The sender describes (over the control plane: request id, length, hash), the receiver allocates, then the
// bytes move once, into the receiver's memory. The control plane (proto/service.proto) carries addresses and
// secrets.
//
// Our deadlines decide that a peer is dead, not the transport's: a late receive is cancelled by closing its
// peer.
//
//   consumer                                      worker
//   sink = MakeSink(...)                          source = MakeSource(...)
//   sink->address()  ------ OpenSession ------->  peer = source->Connect(session, address, secret)
//   sink->Connect(session, address, secret) <---  source->address()
//   sink->Expect(session, 17, buffer, done)
//                    ------ RequestPart 17 --->   source->Send(session, 17, part, hash, sent)
//   done(OK)  <=========== bytes ==============   sent(OK)
//
// Thread safety: all members may be called from many threads. Callbacks run on the transport's own threads,
// without its locks and never inside Expect or Send; they must not block, and may call nothing of the
// transport but Expect and Send. Sink::Connect, Expect and Send may be called while the caller holds locks.
// Source::Connect, Cancel, Disconnect and the destructors wait for callbacks, so never call them with a lock
// that a callback takes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
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
// One exception: if a network card does not release a buffer within `completion_timeout` of its session's
// end, although the connection was closed by force, `done` runs with the session's error and is never
// destroyed. So let it own the buffer: the buffer then lives until the process ends, and late writes of the
// card do no harm. Counted by buffers_abandoned.
using Done = std::function<void(absl::Status)>;

struct Options {
  std::string name = "ucx";   // "ucx" | "grpc" | "memory"
  bool require_rdma = false;  // FailedPrecondition at Make* if the transport would not be RDMA
  // ucx: permits TCP. Its TCP transport serves writes to any address from any process that connects
  // (docs/security.md), so without this flag UCX uses RDMA alone. Only the user may set it.
  bool trusted_network = false;
  std::string devices;  // ucx: UCX_NET_DEVICES; empty: the library's choice
  // ucx over TCP without `devices`: "host:port" of the peers; it listens on the interfaces that lead to them
  // and on no other. Empty: on all.
  std::vector<std::string> towards;
  // ucx over TCP: the range of ports that it may listen on; 0: any free one. Leave room: a port whose
  // connections ended recently cannot be bound. A sink needs none, since nobody connects to it.
  uint16_t first_port = 0, last_port = 0;
  bool loopback_only = false;  // ucx: binds to "lo" alone; set it if there are no certificates
  // grpc sinks: the name in the workers' certificates, if endpoints are addresses resolved from it; empty:
  // each endpoint's own host.
  std::string certified_name;
  absl::Duration connect_timeout = absl::Seconds(5);
  // ucx: how long after a session's end its buffers are waited for. Milliseconds are normal; a timeout is a
  // fault of the card, its driver or UCX.
  absl::Duration completion_timeout = absl::Seconds(10);
  uint64_t max_message_bytes = 512ull << 20;
  // memory: the copies of parts that a source's consumers have not taken yet, together. A part that is larger
  // is handed over while no other copy exists.
  uint64_t max_copied_bytes = 256ull << 20;
};

struct Info {
  std::string name;    // "ucx", "grpc", "memory"
  std::string detail;  // "tcp/eth0", "rc_mlx5/mlx5_0:1", "sealed"
  bool is_rdma = false;
};

// The worker's side: sends.
class Source {
 public:
  virtual ~Source() = default;
  virtual Info info() const = 0;
  virtual std::string address() const = 0;  // opaque bytes for the control plane; empty for grpc

  // Prepares to send to a consumer, without waiting for the network.
  // InvalidArgument: not an address; AlreadyExists: the session exists.
  virtual absl::Status Connect(SessionId session, const std::string& peer_address, const Secret& secret) = 0;
  // Sends one part. `bytes` must stay valid and unchanged until `done`. `done`: OK when the bytes were handed
  // over (locally complete); Unavailable: the peer is gone; DeadlineExceeded: no completion within `timeout`
  // (the peer is closed).
  virtual void Send(SessionId session, RequestId request, std::span<const std::byte> bytes,
                    const Digest& hash, absl::Duration timeout, Done done) = 0;
  // Ends a session; its pending sends have completed with Cancelled when this returns. Unknown sessions are
  // ignored.
  virtual void Disconnect(SessionId session) = 0;

  // Not OK: no consumer can connect any longer; only a new process can mend that.
  virtual absl::Status health() const { return absl::OkStatus(); }
  // Messages that name no session, or have the wrong secret.
  virtual uint64_t messages_dropped() const { return 0; }
  // Buffers of Send that were never released (see Done).
  virtual uint64_t buffers_abandoned() const { return 0; }
};

// The consumer's side: receives.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual Info info() const = 0;
  virtual std::string address() const = 0;
  // For OpenSession, in addition to `address`: lets a worker of this machine hand over sealed memory instead of
  // using this transport. Empty: not offered.
  virtual std::string memory_address() const { return ""; }
  // The transport that sessions use. Differs from info() only where memory_address() is not empty.
  virtual Info used() const { return info(); }

  // `endpoint`: the worker's control-plane address ("host:port"), which grpc uses. `peer_address`: what the
  // worker returned from OpenSession, which ucx and memory use. memory connects at once: FailedPrecondition,
  // Unavailable or PermissionDenied mean that this worker's memory cannot be handed over to this process.
  virtual absl::Status Connect(SessionId session, const std::string& endpoint,
                               const std::string& peer_address, const Secret& secret) = 0;
  // Announces memory for a request before the request is made. `buffer` belongs to the transport until
  // `done`. `done`: OK when `buffer` is full and its hash is the sender's; DataLoss: wrong hash or length;
  // Unavailable: the peer is gone; Cancelled. A message that matches no outstanding request is dropped and
  // counted.
  virtual void Expect(SessionId session, RequestId request, std::span<std::byte> buffer, Done done) = 0;
  // Cancels one request. If its bytes are already arriving, the session's peer is closed by force so that
  // nothing can write later; then all requests of the session end with Unavailable. When this returns, `done`
  // has run; that takes little more than `completion_timeout` at most.
  virtual void Cancel(SessionId session, RequestId request) = 0;
  virtual void Disconnect(SessionId session) = 0;

  // Optional, for speed: buffers of Expect will lie in `memory`, so it is registered with the network card
  // once instead of per part. Keep it mapped until UnregisterMemory(memory) or the sink's end. `memory` must be
  // private memory, and registered with nothing else: the transport memory replaces whole pages of a buffer by
  // the sender's, which stay there after `done`. Map other pages over them to give them back.
  virtual absl::Status RegisterMemory(std::span<std::byte> memory) {
    (void)memory;
    return absl::OkStatus();
  }
  virtual void UnregisterMemory(std::span<std::byte> memory) { (void)memory; }
  // True if pages of the session's buffers may be replaced.
  virtual bool replaces_pages(SessionId session) const {
    (void)session;
    return false;
  }

  virtual uint64_t bytes_received() const = 0;
  // Payload bytes received on a session so far, including incomplete parts; 0 for unknown sessions. Never
  // decreases. What a network card writes by itself is counted when its part is complete.
  virtual uint64_t bytes_arrived(SessionId session) const = 0;
  virtual uint64_t messages_dropped() const = 0;  // wrong secret, unknown request, wrong length
  // Buffers of Expect that were never released (see Done).
  virtual uint64_t buffers_abandoned() const { return 0; }
};

}  // namespace evenkeel::transport
