// Accepts connections for a server that is handed them, within bounds, and goes on when handles run out.
//
//   Acceptor acceptor(std::move(listener), {.max_connections = 4096}, [&](Handle connection) {
//     server.TakeOver(std::move(connection));
//   });
//   ...
//   acceptor.Stop();   // before the server that takes connections ends
//
// gRPC's own listener stops accepting for ever when the process has once run out of file handles
// (CVE-2023-4785), and accepts whatever comes until then. This one:
//
// - holds a connection back until its first bytes are there and begin as TLS or HTTP/2 does, so that idle
//   connections and strangers to the protocol reach nothing. `max_silent` wait at a time, for `silence` at
//   most; when more come, the oldest of the address with the most is closed;
// - bounds the connections that it handed over and that are open, in all and of one address. Whoever took
// them
//   closes them unseen: the kernel's number of each socket tells whether its handle is still the same;
// - closes a connection whose handle has a high number: accept takes the lowest that is free, so few are
// left,
//   and those are for data, logs and processes;
// - keeps one handle in reserve: where there is none to accept with, it is given up, the connection accepted
// and
//   closed, and the reserve taken again. Otherwise the connection would wait, and the loop spin.
//
// Thread safety: all members may be called from many threads. It has a thread of its own, on which `take`
// runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "absl/time/time.h"
#include "core/handle.h"
#include "server/listener.h"
#include "server/poll_thread.h"
#include "telemetry/metrics.h"

namespace evenkeel::server {

class Acceptor {
 public:
  struct Options {
    uint32_t max_connections = 1024;  // handed over and open
    uint32_t max_of_address = 512;    // of those, of one IP address; loopback and Unix sockets are exempt
    uint32_t max_silent = 64;
    absl::Duration silence = absl::Seconds(10);
    int reserved_from = 1 << 20;  // connections with this number or a higher one are closed
    bool tls = false;             // what connections begin with: TLS, or else HTTP/2 itself
  };
  using Take = std::function<void(Handle connection)>;

  // `take` gets connections that do not block, and must not block.
  Acceptor(Listener listener, const Options& options, Take take);
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Closes the listener and what was not handed over; `take` is not called after it returns.
  void Stop() { thread_.Stop(); }

  const std::string& address() const { return address_; }
  const std::string& dial() const { return dial_; }
  uint64_t connections() const { return connections_; }  // handed over and open, as of the last second
  uint64_t refused(telemetry::Refusal refusal) const { return refused_[static_cast<size_t>(refusal)]; }

  // For tests: stops accepting, as a listener that has lost its way does.
  void GoDeaf() { deaf_ = true; }

 private:
  class Loop;

  const std::string address_, dial_;
  std::atomic<uint64_t> connections_{0};
  std::atomic<uint64_t> refused_[telemetry::kNumRefusals] = {};
  std::atomic<bool> deaf_{false};
  PollThread thread_;  // last: its loop uses the others
};

}  // namespace evenkeel::server
