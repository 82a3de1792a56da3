// The examples of client/.
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "client/consumer.h"
#include "client/endpoints.h"
#include "client/own_node.h"
#include "client/receive_memory.h"
#include "client/shared_step.h"
#include "core/status.h"

namespace evenkeel::client {

absl::Status Consume(void (*Use)(const PartView&)) {
#include "examples/client/consumer.h.inc"
  return absl::OkStatus();
}

absl::Status WatchEndpoints() {
#include "examples/client/endpoints.h.inc"
  return absl::OkStatus();
}

absl::Status AskWhoIsNear() {
#include "examples/client/own_node.h.inc"
  return absl::OkStatus();
}

absl::Status Receive(uint64_t num_bytes, void (*Fill)(std::span<std::byte>)) {
#include "examples/client/receive_memory.h.inc"
  return absl::OkStatus();
}

absl::Status PassOn(const std::shared_ptr<const StepData>& step, const std::shared_ptr<const void>& owner) {
#include "examples/client/shared_step.h.inc"
  return absl::OkStatus();
}

}  // namespace evenkeel::client
