// Collects the answers of the workers and decides which stream and layout the consumer follows.
#include "client/first_contact.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/steady_time.h"

namespace evenkeel::client {
namespace {

constexpr size_t kFirstContacts = 16;  // bounds the connections that all ranks open when a run starts
constexpr absl::Duration kOthersMayAnswer = absl::Seconds(3);
constexpr absl::Duration kDescribeTimeout = absl::Seconds(5);
constexpr absl::Duration kAskAgain = absl::Milliseconds(300);
constexpr absl::Duration kTick = absl::Milliseconds(50);

struct Asked {
  CallId call = 0;
  absl::Time not_before = absl::InfinitePast();
  absl::Status answer;                      // why it is not acceptable; OK while unknown
  std::optional<WorkerDescription> worker;  // acceptable
};

// "stream digest X by a:7000, b:7000 and stream digest Y by c:7000"; empty if all agree.
std::string Differences(const char* what, std::string WorkerDescription::*digest,
                        const std::map<std::string, const WorkerDescription*>& workers) {
  std::map<std::string, std::vector<std::string>> served_by;
  for (const auto& [endpoint, worker] : workers) served_by[worker->*digest].push_back(endpoint);
  if (served_by.size() <= 1) return "";
  return absl::StrJoin(served_by, " and ", [what](std::string* out, const auto& one) {
    absl::StrAppend(out, what, " digest ", one.first, " by ", absl::StrJoin(one.second, ", "));
  });
}

class Contact {
 public:
  Contact(const ConsumerOptions& options, const Pinned& wanted, ControlPlane& control,
          const std::function<absl::Status(const std::string&)>& may_dial)
      : options_(options), wanted_(wanted), control_(control), may_dial_(may_dial) {}

  void Ask(absl::Time now) {
    for (auto& [endpoint, asked] : asked_) {
      if (asked.call != 0 || now < asked.not_before) continue;
      asked.not_before = now + kAskAgain;
      if (absl::Status may = may_dial_(endpoint); !may.ok()) {
        asked.answer = may;
        asked.not_before = absl::InfiniteFuture();
        continue;
      }
      asked.call = control_.Describe(endpoint, std::min(kDescribeTimeout, options_.connect_timeout));
    }
  }

  void Take(Event& event, absl::Time now) {
    if (auto* changed = std::get_if<EndpointsChanged>(&event.what)) TakeEndpoints(*changed);
    for (auto& [endpoint, asked] : asked_) {
      if (event.call == 0 || asked.call != event.call) continue;
      asked.call = 0;
      asked.not_before = now + kAskAgain;
      if (auto* ended = std::get_if<CallEnded>(&event.what)) asked.answer = ended->status;
      if (auto* worker = std::get_if<WorkerDescription>(&event.what)) {
        asked.answer = CheckPinned(*worker, wanted_);
        if (!asked.answer.ok()) continue;
        asked.worker = std::move(*worker);
        asked.not_before = absl::InfiniteFuture();
        decide_at_ = std::min(decide_at_, now + kOthersMayAnswer);
      }
    }
  }

  bool found_one() const { return decide_at_ != absl::InfiniteFuture(); }

  // True if an acceptable worker answered and no other answer is worth waiting for.
  bool Decided(absl::Time now) const {
    if (!found_one()) return false;
    bool all_named = !wanted_.stream_digest.empty() && !wanted_.layout_digest.empty();
    return all_named || now >= decide_at_ || std::ranges::all_of(asked_, [](const auto& entry) {
             return entry.second.worker.has_value() || !entry.second.answer.ok();
           });
  }

  absl::StatusOr<FirstContact> Found() {
    std::map<std::string, const WorkerDescription*> draining, serving;
    for (const auto& [endpoint, asked] : asked_) {
      if (!asked.worker.has_value()) continue;
      (asked.worker->draining ? draining : serving)[endpoint] = &*asked.worker;
    }
    const auto& voters = serving.empty() ? draining : serving;
    for (const auto& [what, digest] : {std::pair("stream", &WorkerDescription::stream_digest),
                                       std::pair("layout", &WorkerDescription::layout_digest)}) {
      std::string differences = Differences(what, digest, voters);
      if (differences.empty()) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "workers serve different ", what, "s: ", differences, ". Name the wanted one (expect_", what,
          "_digest of the Loader, --job of fetch, or resume from a state), list the endpoints of one job "
          "only, or "
          "wait until the workers of the other are gone"));
    }
    // Close the connections that are not needed now; a worker is dialled again when it is first asked for a
    // part.
    for (const auto& [endpoint, asked] : asked_) {
      if (asked.call != 0) control_.Cancel(asked.call);
      if (endpoint != voters.begin()->first) control_.Forget(endpoint);
    }
    found_.worker = *voters.begin()->second;
    return std::move(found_);
  }

  // True if every worker answered with an error that a retry cannot mend.
  bool Hopeless() const {
    return !asked_.empty() && std::all_of(asked_.begin(), asked_.end(), [](const auto& entry) {
      absl::StatusCode code = entry.second.answer.code();
      return code == absl::StatusCode::kFailedPrecondition || code == absl::StatusCode::kPermissionDenied ||
             code == absl::StatusCode::kUnauthenticated;
    });
  }

  // If a worker rejects our certificate, gRPC reports no more than a closed connection. The hint lists what
  // to check.
  std::string TlsHint(const absl::Status& answer) const {
    bool certificates = absl::StrContains(answer.message(), "handshake failed") ||
                        absl::StrContains(answer.message(), "Hostname Verification");
    bool closed = absl::StrContains(answer.message(), "Socket closed") ||
                  absl::StrContains(answer.message(), "Connection reset");
    if (!certificates && !closed) return "";
    if (options_.tls.certificate.empty()) {
      return " (a worker with certificates needs --tls-cert, --tls-key and --tls-ca on this side, "
             "too)";
    }
    return absl::StrCat(
        certificates
            ? " (is the worker's certificate for this name, and signed by our --tls-ca?"
            : " (is our --tls-cert signed by the worker's --tls-ca, and has the worker certificates?",
        " Has one of them expired, or is a clock wrong? Ours are valid: ",
        transport::DescribeDates(options_.tls), "; here it is ",
        absl::FormatTime("%b %e %H:%M:%S %Y GMT", absl::Now(), absl::UTCTimeZone()), ")");
  }

  absl::Status Failure() const {
    absl::StatusCode code = absl::StatusCode::kUnavailable;
    std::string text;
    for (const auto& [endpoint, asked] : asked_) {
      absl::StatusCode one = asked.answer.code();
      if (one == absl::StatusCode::kFailedPrecondition ||
          (one == absl::StatusCode::kPermissionDenied && Hopeless())) {
        code = one;
      }
      absl::StrAppend(&text, text.empty() ? "" : "; ", endpoint, ": ",
                      asked.answer.ok() ? "no answer" : asked.answer.message(), TlsHint(asked.answer));
    }
    if (asked_.empty()) text = lookup_.ok() ? "no endpoint is known yet" : std::string(lookup_.message());
    return absl::Status(code, absl::StrCat("no worker can serve rank ", options_.rank, ": ", text));
  }

 private:
  void TakeEndpoints(const EndpointsChanged& changed) {
    lookup_ = changed.status;
    if (!changed.status.ok()) return;
    found_.endpoints = changed.sorted;
    // Each rank starts at another place of the list, so that ranks spread over the workers.
    size_t count = changed.sorted.size();
    size_t asked = std::min(count, kFirstContacts);
    for (size_t i = 0; i < asked; ++i) {
      asked_.try_emplace(changed.sorted[(options_.rank + i * count / asked) % count]);
    }
  }

  const ConsumerOptions& options_;
  const Pinned& wanted_;
  ControlPlane& control_;
  const std::function<absl::Status(const std::string&)>& may_dial_;
  std::map<std::string, Asked> asked_;
  absl::Status lookup_;
  absl::Time decide_at_ = absl::InfiniteFuture();  // set by the first acceptable answer
  FirstContact found_;
};

}  // namespace

absl::StatusOr<FirstContact> MakeFirstContact(
    const ConsumerOptions& options, const Pinned& wanted, Inbox& inbox, ControlPlane& control,
    const std::function<absl::Status(const std::string&)>& may_dial) {
  Contact contact(options, wanted, control, may_dial);
  absl::Time deadline = SteadyNow() + options.connect_timeout;
  for (;;) {
    absl::Time now = SteadyNow();
    contact.Ask(now);
    for (Event& event : inbox.Take(kTick)) contact.Take(event, SteadyNow());
    if (contact.Decided(SteadyNow())) return contact.Found();
    bool late = SteadyNow() >= deadline;
    if (late && contact.found_one()) return contact.Found();
    if (contact.Hopeless() || late) return contact.Failure();
  }
}

}  // namespace evenkeel::client
