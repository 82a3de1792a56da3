// Ports for the data plane.
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace evenkeel::transport {

// The fewest ports of a range: a worker listens at one, and those of its predecessor cannot be taken for a
// minute.
inline constexpr int kMinPorts = 8;

// "7100-7131" as first and last. InvalidArgument: anything else, fewer than kMinPorts, or ports below 1024.
absl::StatusOr<std::pair<uint16_t, uint16_t>> ParsePorts(const std::string& text);

// Unavailable: fewer than two ports of the range can be listened at. UCX would try for ever.
absl::Status CheckFreePorts(uint16_t first, uint16_t last);

}  // namespace evenkeel::transport
