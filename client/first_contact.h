// The first contact: asks the workers what they serve, and pins it.
//
// What the caller does not name (the stream digest, the layout digest) must be the same on all workers that
// answer, or ranks would follow whichever worker answered each of them first. Draining workers have no say
// where others answer.
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

namespace evenkeel::client {

struct FirstContact {
  WorkerDescription worker;            // one that is acceptable, and that the others agree with
  std::vector<std::string> endpoints;  // the last list that was seen
};

// Asks kFirstContacts of the known workers at once, spread over the list, and those that do not answer again.
// Once an acceptable one has answered, the others have kOthersMayAnswer where a digest is not in `wanted`.
// FailedPrecondition: every worker that answered serves something else than `wanted`, or they serve different
// things (names both); Unavailable: none answered within the timeout (names each one's last error);
// PermissionDenied: certificates or addresses.
absl::StatusOr<FirstContact> MakeFirstContact(
    const ConsumerOptions& options, const Pinned& wanted, Inbox& inbox, ControlPlane& control,
    const std::function<absl::Status(const std::string&)>& may_dial);

}  // namespace evenkeel::client
