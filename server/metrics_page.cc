// Serves the metrics at /metrics by the worker's own HTTP responder.
#include "server/metrics_page.h"

#include <string_view>

namespace evenkeel::server {

absl::StatusOr<std::unique_ptr<HttpResponder>> ExposeMetrics(const telemetry::Metrics& metrics,
                                                             const std::string& address) {
  return HttpResponder::Start("--metrics", address, [&metrics](std::string_view path) {
    if (path != "/metrics") return HttpResponder::Reply{.code = 404, .body = "see /metrics\n"};
    return HttpResponder::Reply{.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics.Text()};
  });
}

}  // namespace evenkeel::server
