// Where the workers are: a fixed list, or a name that is looked up again and again (a headless service).
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(EndpointSpec spec, ParseEndpoints("dns:///workers.training:7000"));
//     EndpointWatch watch(spec, [](auto sorted) { /* called on the watch's own thread */ });
//     watch.LookAgain();  // after a worker was lost
//
// Thread safety: EndpointWatch may be used from many threads; the callback runs on its thread, never two at
// once, and not after the destructor returned. The destructor waits for a callback in progress, but not for a
// lookup, which may take a resolver minutes: that one goes on by itself, and its answer is dropped.
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
  std::string name;               // dns: the name that certificates must bear; empty for a list
  std::string port;               // dns
  std::vector<std::string> list;  // sorted, distinct; empty for dns

  bool is_dns() const { return !name.empty(); }
};

// "host:port,host:port" or "dns:///name:port". InvalidArgument says what is wrong.
absl::StatusOr<EndpointSpec> ParseEndpoints(const std::string& text);

// All addresses of name:port as "a.b.c.d:port" or "[v6]:port", sorted, distinct. Unavailable where there are
// none.
absl::StatusOr<std::vector<std::string>> LookUp(const std::string& name, const std::string& port);

class EndpointWatch {
 public:
  using Listener = std::function<void(absl::StatusOr<std::vector<std::string>>)>;
  // May run, and be destroyed, after the watch.
  using Lookup =
      std::function<absl::StatusOr<std::vector<std::string>>(const std::string&, const std::string&)>;

  // Tells the listener a list at once, and a name's addresses after every lookup (about every `interval`,
  // with jitter, so that ranks do not ask together).
  EndpointWatch(EndpointSpec spec, Listener listener, absl::Duration interval = absl::Seconds(30),
                Lookup lookup = LookUp);
  ~EndpointWatch();
  // Looks the name up soon, at most once a second. Nothing to do for a list.
  void LookAgain();

 private:
  struct State;  // the thread's, too, which may outlive the watch

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace evenkeel::client
