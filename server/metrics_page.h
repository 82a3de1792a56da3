// Serves the worker's metrics as a page for Prometheus.
//
// Thread safety: as HttpResponder.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/http_responder.h"
#include "telemetry/metrics.h"

namespace evenkeel::server {

// Serves the text of `metrics`, which must outlive the responder, at http://`address`/metrics; "host:0" takes
// a free port. Errors of Listen (server/listener.h).
absl::StatusOr<std::unique_ptr<HttpResponder>> ExposeMetrics(const telemetry::Metrics& metrics,
                                                             const std::string& address);

}  // namespace evenkeel::server
