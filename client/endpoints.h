// Where the workers are: a fixed list, or a DNS name that is resolved periodically (a headless service).
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(EndpointSpec spec, ParseEndpoints("dns:///workers.training:7000"));
//     EndpointWatch watch(spec, [](auto sorted) { /* called on the watch's own thread */ });
//     watch.LookAgain();  // after a worker was lost
//
// Thread safety: EndpointWatch may be used from many threads. The callback runs on the watch's thread, never
// concurrently with itself, and never after the destructor has returned. The destructor waits for a callback
// in progress, but not for a lookup, since a resolver may take minutes: an unfinished lookup continues on its
// own and its answer is dropped.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace evenkeel::client {

struct EndpointSpec {
  std::string name;               // dns: the name that the workers' certificates must have; empty for a list
  std::string port;               // dns
  std::vector<std::string> list;  // sorted, distinct; empty for dns

  bool is_dns() const { return !name.empty(); }
};

// "host:port,host:port" or "dns:///name:port". InvalidArgument: anything else (names the entry).
absl::StatusOr<EndpointSpec> ParseEndpoints(const std::string& text);

// All addresses of name:port as "a.b.c.d:port" or "[v6]:port", sorted and distinct. Unavailable if there is
// none.
absl::StatusOr<std::vector<std::string>> LookUp(const std::string& name, const std::string& port);

class EndpointWatch {
 public:
  using Listener = std::function<void(absl::StatusOr<std::vector<std::string>>)>;
  // Must be self-contained: it may run, and be destroyed, after the watch.
  using Lookup =
      std::function<absl::StatusOr<std::vector<std::string>>(const std::string&, const std::string&)>;

  // Calls the listener with a fixed list at once, and with a name's addresses after every lookup: about every
  // `interval`, with jitter, so that the ranks of a run do not query together.
  EndpointWatch(EndpointSpec spec, Listener listener, absl::Duration interval = absl::Seconds(30),
                Lookup lookup = LookUp);
  ~EndpointWatch();
  // Looks the name up soon, at most once a second. Does nothing for a fixed list.
  void LookAgain();

 private:
  struct State;  // shared with the thread, which may outlive the watch

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace evenkeel::client
