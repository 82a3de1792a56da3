// Finds out at start whether a device carries messages, by sending one to this process itself.
//
// A device that UCX lists need not work: a GID without a route, a firewall, a driver that UCX misreads. UCX
// 1.13 notices nothing, or aborts the process after 30 seconds. The check makes two workers, as a session has
// them, connects them through the device and moves some bytes the way parts travel: wire-up, then a
// rendezvous, which the receiver fetches. Milliseconds on a device that works.
//
// Thread safety: belongs to the engine's thread; blocks it until the check ends.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transport/ucx_worker.h"

namespace evenkeel::transport {

// OK: the bytes arrived. Unavailable: they did not within `timeout`, or an endpoint failed; says how far it
// came. What UCX does not complete after that is abandoned (UcxWorker::Abandon), never destroyed.
absl::Status CheckSelfDelivery(const std::shared_ptr<UcxContext>& context, absl::Duration timeout);

}  // namespace evenkeel::transport
