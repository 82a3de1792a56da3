// Plans the file handles before the first consumer connects, so that a shortage is an error at the start.
#include "server/handle_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace evenkeel::server {
namespace {

// The worker's own handles: its index, event loops, metrics, UCX.
constexpr uint64_t kOwnHandles = 80;
constexpr uint64_t kMinSilent = 8, kMaxSilent = 256;

}  // namespace

absl::StatusOr<HandlePlan> PlanHandles(uint64_t limit, uint32_t wanted_sessions, bool ucx) {
  const uint64_t per_session = ucx ? kHandlesOfUcxSession : kHandlesOfGrpcSession;
  // per_session * sessions + own <= half; the other half of the handles is not for connections.
  const uint64_t half = limit / 2;
  const uint64_t silent = std::clamp(half / 8, kMinSilent, kMaxSilent);
  const uint64_t own = kOwnHandles + silent;
  const uint64_t fit = half > own ? (half - own) / per_session : 0;
  const uint64_t wanted =
      wanted_sessions != 0 ? wanted_sessions : std::min<uint64_t>(fit, kDefaultMaxSessions);
  if (wanted == 0 || wanted > fit) {
    const uint64_t at_most = kOwnHandles + kMaxSilent;
    const uint64_t needed = 2 * (at_most + std::max<uint64_t>(wanted, 1) * per_session);
    return absl::InvalidArgumentError(absl::StrCat(
        "this process may open ", limit, " file handles, enough for ", fit, " sessions; ",
        std::max<uint64_t>(wanted, 1), " (--max-sessions) need ", needed, ": ", per_session, " for each and ",
        own, " for the worker, and as many again for data. Raise the hard limit (ulimit -Hn; ",
        "systemd: LimitNOFILE=), or ask for fewer sessions"));
  }
  return HandlePlan{.max_sessions = static_cast<uint32_t>(wanted),
                    // A session has two connections per plane while they are being replaced.
                    .max_connections = static_cast<uint32_t>(std::min(half - own, 4 * wanted + 16)),
                    .max_silent = static_cast<uint32_t>(silent),
                    .reserved_from = static_cast<int>(half)};
}

}  // namespace evenkeel::server
