#include "client/first_contact.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "core/steady_time.h"

namespace evenkeel {
namespace {

constexpr size_t kFirstContacts = 8;
constexpr absl::Duration kDescribeTimeout = absl::Seconds(5);
constexpr absl::Duration kAskAgain = absl::Milliseconds(300);
constexpr absl::Duration kTick = absl::Milliseconds(50);

struct Asked {
  CallId call = 0;
  absl::Time not_before = absl::InfinitePast();
  absl::Status answer;  // why it is not acceptable; OK while it is not known
};

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

  // True where `event` brought an acceptable worker.
  bool Take(Event& event, absl::Time now) {
    if (auto* changed = std::get_if<EndpointsChanged>(&event.what)) TakeEndpoints(*changed);
    for (auto& [endpoint, asked] : asked_) {
      if (event.call == 0 || asked.call != event.call) continue;
      asked.call = 0;
      asked.not_before = now + kAskAgain;
      if (auto* ended = std::get_if<CallEnded>(&event.what)) asked.answer = ended->status;
      if (auto* worker = std::get_if<WorkerDescription>(&event.what)) {
        asked.answer = CheckPinned(*worker, wanted_);
        if (!asked.answer.ok()) continue;
        found_.worker = std::move(*worker);
        return true;
      }
    }
    return false;
  }

  // Whether waiting longer is of no use: everyone answered and nobody fits.
  bool Hopeless() const {
    return !asked_.empty() && std::all_of(asked_.begin(), asked_.end(), [](const auto& entry) {
      absl::StatusCode code = entry.second.answer.code();
      return code == absl::StatusCode::kFailedPrecondition || code == absl::StatusCode::kPermissionDenied ||
             code == absl::StatusCode::kUnauthenticated;
    });
  }

  // gRPC says no more than that the connection ended where the worker did not accept our certificate.
  std::string TlsHint(const absl::Status& answer) const {
    bool certificates = absl::StrContains(answer.message(), "handshake failed") ||
                        absl::StrContains(answer.message(), "Hostname Verification");
    if (!certificates && !absl::StrContains(answer.message(), "Socket closed")) return "";
    if (options_.tls.certificate.empty()) {
      return " (a worker that was started with certificates needs --tls-cert, --tls-key and --tls-ca here, "
             "too)";
    }
    return certificates
               ? " (is the worker's certificate for this name, and signed by our --tls-ca?)"
               : " (is our --tls-cert signed by the worker's --tls-ca, and has the worker certificates?)";
  }

  FirstContact Found() { return std::move(found_); }

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
    size_t count = changed.sorted.size();
    for (size_t i = 0; i < std::min(count, kFirstContacts); ++i) {
      asked_.try_emplace(changed.sorted[(options_.rank + i) % count]);
    }
  }

  const ConsumerOptions& options_;
  const Pinned& wanted_;
  ControlPlane& control_;
  const std::function<absl::Status(const std::string&)>& may_dial_;
  std::map<std::string, Asked> asked_;
  absl::Status lookup_;
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
    for (Event& event : inbox.Take(kTick)) {
      if (contact.Take(event, SteadyNow())) return contact.Found();
    }
    if (contact.Hopeless() || SteadyNow() >= deadline) return contact.Failure();
  }
}

}  // namespace evenkeel
