// Checks at the start whether a device delivers messages, by sending one to this process.
//
// A device that UCX lists may still not work: a GID without a route, a firewall, a driver that UCX misreads.
// UCX 1.13 does not notice, or aborts the process after 30 seconds. The check creates two workers, as a
// session does, connects them through the device and moves some bytes the way parts travel: wire-up, then a
// rendezvous, which the receiver fetches. Takes milliseconds on a working device.
//
// Thread safety: belongs to the engine's thread, which it blocks until the check ends.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "transport/ucx_worker.h"

namespace evenkeel::transport {

// OK: the bytes arrived. Unavailable: they did not arrive within `timeout`, or an endpoint failed (the
// message has the stage that was reached). Operations that UCX does not complete are abandoned
// (UcxWorker::Abandon), never destroyed.
absl::Status CheckSelfDelivery(const std::shared_ptr<UcxContext>& context, absl::Duration timeout);

}  // namespace evenkeel::transport
