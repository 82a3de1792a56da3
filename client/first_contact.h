// The first contact: asks the workers which stream and layout they serve, and pins both.
//
// Digests that the caller does not give must be equal on all workers that answer; otherwise each rank would
// follow the worker that answered it first. Draining workers are ignored if others answer.
//
// Thread safety: a function; it is the only reader of the inbox until it returns.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/consumer.h"
#include "client/control_plane.h"
#include "client/fetch_loop.h"

namespace evenkeel::client {

struct FirstContact {
  WorkerDescription worker;            // an acceptable one; the others agree with it
  std::vector<std::string> endpoints;  // the most recent list
};

// Asks up to kFirstContacts workers at once, spread over the list, and repeats failed calls. After the first
// acceptable answer the others get kOthersMayAnswer if a digest is missing in `wanted`. FailedPrecondition:
// every worker that answered serves something other than `wanted`, or they differ (names both). Unavailable:
// none answered within connect_timeout (names each one's last error). PermissionDenied: certificates or
// addresses.
absl::StatusOr<FirstContact> MakeFirstContact(
    const ConsumerOptions& options, const Pinned& wanted, Inbox& inbox, ControlPlane& control,
    const std::function<absl::Status(const std::string&)>& may_dial);

}  // namespace evenkeel::client
