// The first contact: waits until one worker has said what it serves, and pins it.
//
// Thread safety: a function; it reads the inbox until it returns, so nothing else may.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/consumer.h"
#include "client/control_plane.h"
#include "client/fetch_loop.h"

namespace evenkeel {

struct FirstContact {
  WorkerDescription worker;            // the first that is acceptable
  std::vector<std::string> endpoints;  // the last list that was seen
};

// Asks all known workers at once (kFirstContacts of them, rotated by rank) and those that do not answer
// again. FailedPrecondition: every worker that answered serves something else than `wanted` (names both);
// Unavailable: none answered within the timeout (names each one's last error); PermissionDenied: certificates
// or addresses.
absl::StatusOr<FirstContact> MakeFirstContact(
    const ConsumerOptions& options, const Pinned& wanted, Inbox& inbox, ControlPlane& control,
    const std::function<absl::Status(const std::string&)>& may_dial);

}  // namespace evenkeel
