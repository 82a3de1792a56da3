// Parses and checks the range of ports for the data plane.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace evenkeel::transport {

// The smallest range. A worker listens on one port, and the ports of its predecessor's connections cannot be
// bound for a minute (TIME_WAIT).
inline constexpr int kMinPorts = 8;

// Parses "7100-7131" into first and last. InvalidArgument: anything else, fewer than kMinPorts, or ports
// below 1024.
absl::StatusOr<std::pair<uint16_t, uint16_t>> ParsePorts(const std::string& text);

// Unavailable if fewer than two ports of the range can be bound, because UCX would retry forever.
absl::Status CheckFreePorts(uint16_t first, uint16_t last);

}  // namespace evenkeel::transport
