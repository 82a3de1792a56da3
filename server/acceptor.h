// Accepts connections for a server, within bounds, and keeps accepting after the process ran out of file
// handles.
//
// Example:
//     Acceptor acceptor(std::move(listener), {.max_connections = 4096},
//                       [&](Handle connection) { server.TakeOver(std::move(connection)); });
//     acceptor.Stop();  // before the server that takes the connections ends
//
// gRPC's own listener stops accepting permanently once the process has run out of file handles
// (CVE-2023-4785), and accepts any connection until then. This one:
//
// - holds a connection back until its first bytes have arrived and begin like TLS or HTTP/2, so that idle
//   connections and other protocols never reach the server. `max_silent` of them wait at the same time, each
//   for at most `silence`; if more come, the oldest one of the address with the most is closed;
// - bounds the open connections that it handed over, in total and per address. The receiver closes them
//   without notice, so the kernel's number of each socket is compared to see whether its handle is still the
//   same;
// - closes a connection whose handle has a high number: accept uses the lowest free number, so few handles
//   are left, and those are for data, logs and processes;
// - keeps one handle in reserve. If none is left for accept, the reserve is closed, the connection is
//   accepted and closed, and the reserve is opened again. Otherwise the connection would wait and the loop
//   would spin.
//
// Thread safety: all members may be called from many threads. It has a thread of its own, which calls `take`.
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
    bool tls = false;             // connections must begin with TLS; else with the HTTP/2 preface
  };
  using Take = std::function<void(Handle connection)>;

  // `take` gets non-blocking sockets and must not block.
  Acceptor(Listener listener, const Options& options, Take take);
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Closes the listener and the connections that still wait; `take` is not called after it returns.
  void Stop() { thread_.Stop(); }

  const std::string& address() const { return address_; }
  const std::string& dial() const { return dial_; }
  uint64_t connections() const { return connections_; }  // handed over and open, as of the last second
  uint64_t refused(telemetry::Refusal refusal) const { return refused_[static_cast<size_t>(refusal)]; }

  // For tests: stops accepting, like a listener that has failed silently.
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
