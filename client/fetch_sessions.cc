// Sessions and attempts begin and end here.
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/fetcher.h"
#include "core/job.h"
#include "core/status.h"

namespace evenkeel::client {
namespace {

constexpr absl::Duration kOpenTimeout = absl::Seconds(5);
constexpr absl::Duration kCloseTimeout = absl::Seconds(1);
constexpr absl::Duration kIdleSession = absl::Seconds(60);

transport::Secret FreshSecret() {
  transport::Secret secret = {};
  size_t filled = 0;
  while (filled < secret.size()) {
    ssize_t got = getrandom(secret.data() + filled, secret.size() - filled, 0);
    if (got > 0) filled += static_cast<size_t>(got);
  }
  return secret;
}

std::string OrNone(const std::string& text) { return text.empty() ? "(none)" : text; }

}  // namespace

absl::Status CheckPinned(const WorkerDescription& worker, const Pinned& pinned) {
  if (worker.stream_version != pinned.stream_version) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stream version ", worker.stream_version, ", this consumer needs ", pinned.stream_version,
        "; release ", OrNone(worker.release), " must run beside the old one, not among its workers"));
  }
  if (worker.part_format != kPartFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "part format ", worker.part_format, ", this consumer needs ", kPartFormatVersion,
        "; run workers and consumers of one release (the worker's is ", OrNone(worker.release), ")"));
  }
  if (!pinned.stream_digest.empty() && worker.stream_digest != pinned.stream_digest) {
    return absl::FailedPreconditionError(
        absl::StrCat("stream digest ", OrNone(worker.stream_digest), ", expected ", pinned.stream_digest,
                     ": it serves other data, another seed, batch size or processor"));
  }
  if (!pinned.layout_digest.empty() && worker.layout_digest != pinned.layout_digest) {
    return absl::FailedPreconditionError(
        absl::StrCat("layout digest ", OrNone(worker.layout_digest), ", expected ", pinned.layout_digest,
                     ": its job has another topology, cost, algorithm or wire form"));
  }
  return absl::OkStatus();
}

void Fetcher::OpenSession(Worker& worker, absl::Time now) {
  if (absl::Status may = uses_.may_dial(worker.endpoint); !may.ok()) {
    return RejectWorker(worker, std::string(may.message()), now);
  }
  worker.secret = FreshSecret();
  SessionRequest request;
  request.stream_digest = pinned_.stream_digest;
  request.layout_digest = pinned_.layout_digest;
  request.stream_version = pinned_.stream_version;
  request.rank = options_.rank;
  request.transport = uses_.sink->info().name;
  request.address = uses_.sink->address();
  request.secret = worker.secret;
  worker.BeginOpening(
      uses_.control->OpenSession(worker.endpoint, request, std::min(kOpenTimeout, options_.progress_timeout)),
      now);
}

void Fetcher::EndSession(Worker& worker) {
  if (worker.state == Worker::State::kOpening) uses_.control->Cancel(worker.open_call);
  if (worker.state != Worker::State::kReady) return;
  for (auto& [number, step] : steps_) {
    for (PartFetch& part : step.parts) {
      for (size_t i = part.attempts.size(); i-- > 0;) {
        if (part.attempts[i].endpoint == worker.endpoint) EndAttempt(part, i);
      }
    }
  }
  uses_.sink->Disconnect(worker.session);
  uses_.control->CloseSession(worker.endpoint, worker.session, kCloseTimeout);
  worker.EndSession();
}

void Fetcher::LoseWorker(Worker& worker, const std::string& reason, absl::Time now) {
  bool was_ready = worker.state == Worker::State::kReady;
  EndSession(worker);
  // Its channel has a back-off of its own between connections; this one decides alone.
  if (!was_ready) uses_.control->Forget(worker.endpoint);
  if (was_ready) {
    ++stats_.replaced_workers;
    uses_.log(
        absl::StrCat("worker ", worker.endpoint, " is lost: ", reason, "; its parts are asked of others"));
  }
  SendAway(worker, AfterLoss(worker.failures), reason, now);
  uses_.look_for_workers();
}

void Fetcher::ReopenSession(Worker& worker, const std::string& reason, absl::Time now) {
  EndSession(worker);
  SendAway(worker, AfterEndOfSession(worker.failures), reason, now);
}

void Fetcher::SendAway(Worker& worker, Backoff backoff, const std::string& reason, absl::Time now) {
  worker.SendAway({jitter_(backoff.among_others), jitter_(backoff.alone)}, reason, now);
}

void Fetcher::RejectWorker(Worker& worker, const std::string& reason, absl::Time now) {
  if (worker.trouble != reason) uses_.log(absl::StrCat("worker ", worker.endpoint, " is refused: ", reason));
  EndSession(worker);
  worker.Reject(jitter_(kRejectedFor), reason, now);
}

void Fetcher::EndAttempt(PartFetch& part, size_t index) {
  Attempt attempt = part.Remove(index);
  --num_attempts_;
  uses_.control->Cancel(attempt.call);
  uses_.sink->Cancel(attempt.session, attempt.request);  // from here on nothing writes into the buffer
  if (!part.KeepMemory(attempt)) {
    // The transport keeps the buffer, with its memory. It counts as the trainer's, which also may never come
    // back, so that the head step still gets its own.
    attempt.buffer->MarkDelivered();
    if (auto step = steps_.find(part.name.step); step != steps_.end()) step->second.granted = false;
    uses_.log(absl::StrCat(DescribePart(part.name), ": ", uses_.sink->info().detail, " did not give back ",
                           part.bytes, " bytes of receive memory, which are lost until this process ends (",
                           uses_.sink->buffers_abandoned(),
                           " buffers so far); check the network card and its driver"));
  }
  if (Worker* worker = workers_.Find(attempt.endpoint);
      worker != nullptr && worker->session == attempt.session) {
    worker->End(part.name.phase, attempt.accepted());
  }
}

void Fetcher::CloseIdleSessions(absl::Time now) {
  for (auto& [endpoint, worker] : workers_.all()) {
    bool idle = worker.state == Worker::State::kReady && worker.in_flight == 0 &&
                now - worker.last_used > kIdleSession;
    if (idle) EndSession(worker);
  }
  Release(workers_.TakeFinished());
}

void Fetcher::Release(const std::vector<Worker>& finished) {
  for (const Worker& worker : finished) {
    if (worker.state == Worker::State::kReady) {
      uses_.sink->Disconnect(worker.session);
      uses_.control->CloseSession(worker.endpoint, worker.session, kCloseTimeout);
    }
    uses_.control->Forget(worker.endpoint);
  }
}

}  // namespace evenkeel::client
