// Answers short GET requests: probes and metrics. It is not a web server.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(
//         auto responder, HttpResponder::Start("--probes", "0.0.0.0:9101", [](std::string_view path) {
//           return HttpResponder::Reply{.code = path == "/healthz" ? 200 : 404};
//         }));
//
// One thread polls all connections, so that none can block another: at most 64, each with five seconds for
// its request and five for its reply. If more come, the oldest one without a request is closed. A connection
// serves one request of at most 8 KiB. A handle in reserve lets it answer when the process has none left.
//
// Thread safety: all members may be called from many threads; `answer` runs on the responder's own thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/listener.h"
#include "server/poll_thread.h"

namespace evenkeel::server {

class HttpResponder {
 public:
  struct Reply {
    int code = 200;  // 200, 404 or 503
    std::string type = "text/plain; charset=utf-8";
    std::string body;
  };
  using Answer = std::function<Reply(std::string_view path)>;  // without the query

  // When it returns, connections are accepted. Errors: as Listen (server/listener.h).
  static absl::StatusOr<std::unique_ptr<HttpResponder>> Start(const std::string& option,
                                                              const std::string& address, Answer answer);
  HttpResponder(const HttpResponder&) = delete;
  HttpResponder& operator=(const HttpResponder&) = delete;

  const std::string& address() const { return address_; }  // with the actual port
  // Closes all connections; `answer` is not called after it returns.
  void Stop() { thread_.Stop(); }

 private:
  class Loop;

  HttpResponder(Listener listener, Answer answer);

  const std::string address_;
  PollThread thread_;  // last: its loop uses the others
};

}  // namespace evenkeel::server
