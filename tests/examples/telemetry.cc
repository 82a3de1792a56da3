// The examples of telemetry/.
#include <cstddef>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/file_limit.h"
#include "core/status.h"
#include "telemetry/event_log.h"

namespace evenkeel::telemetry {

void Report(const std::string& name) {
#include "examples/telemetry/event_log.h.inc"
}

}  // namespace evenkeel::telemetry
