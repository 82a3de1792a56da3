// Opens and closes sessions with workers, and ends attempts. A session is one rank's registration with one
// worker; it carries the secret that both sides check on the data plane.
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
constexpr absl::Duration kIdleSession = absl::Seconds(60);  // a session unused for so long is closed

// getrandom may be interrupted or return fewer bytes than asked for; it never fails for these sizes.
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

// Compared from the widest difference to the narrowest, so that the error names the cause and not a
// consequence.
absl::Status CheckPinned(const WorkerDescription& worker, const Pinned& pinned) {
  if (worker.stream_version != pinned.stream_version) {
    return absl::FailedPreconditionError(
        absl::StrCat("stream version ", worker.stream_version, ", this consumer needs ",
                     pinned.stream_version, "; run release ", OrNone(worker.release),
                     " as a deployment of its own, not among the workers of this one"));
  }
  if (worker.part_format != kPartFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "part format ", worker.part_format, ", this consumer needs ", kPartFormatVersion,
        "; run workers and consumers of one release (the worker's is ", OrNone(worker.release), ")"));
  }
  if (!pinned.stream_digest.empty() && worker.stream_digest != pinned.stream_digest) {
    return absl::FailedPreconditionError(
        absl::StrCat("stream digest ", OrNone(worker.stream_digest), ", expected ", pinned.stream_digest,
                     ": the worker's data, seed, batch size or processor differs from this run's"));
  }
  if (!pinned.layout_digest.empty() && worker.layout_digest != pinned.layout_digest) {
    return absl::FailedPreconditionError(
        absl::StrCat("layout digest ", OrNone(worker.layout_digest), ", expected ", pinned.layout_digest,
                     ": the worker's topology, costs, algorithms or wire form differ from this run's"));
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
  if (!worker.memory_refused) request.memory_address = uses_.sink->memory_address();
  request.secret = worker.secret;
  worker.BeginOpening(
      uses_.control->OpenSession(worker.endpoint, request, std::min(kOpenTimeout, options_.progress_timeout)),
      now);
}

// Attempts end before the session: ending one cancels its receive, and Disconnect must find none pending.
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
  // After a session over sealed memory that brought nothing, the next one uses the other transport. After any
  // other, sealed memory is tried again: another worker may run at the endpoint by then.
  if (was_ready) worker.memory_refused = !worker.memory_refused && worker.bytes_arrived == 0;
  EndSession(worker);
  // gRPC would apply a backoff of its own between connections. A new channel has none, so only ours counts.
  if (!was_ready) uses_.control->Forget(worker.endpoint);
  if (was_ready) {
    ++stats_.replaced_workers;
    uses_.log(absl::StrCat("worker ", worker.endpoint, " is lost: ", reason,
                           "; its parts are requested from other workers"));
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

// Logged when the reason changes, not at every retry.
void Fetcher::RejectWorker(Worker& worker, const std::string& reason, absl::Time now) {
  if (worker.trouble != reason) uses_.log(absl::StrCat("worker ", worker.endpoint, " is refused: ", reason));
  EndSession(worker);
  worker.Reject(jitter_(kRejectedFor), reason, now);
}

void Fetcher::EndAttempt(PartFetch& part, size_t index) {
  Attempt attempt = part.Remove(index);
  --num_attempts_;
  uses_.control->Cancel(attempt.call);
  uses_.sink->Cancel(attempt.session, attempt.request);  // nothing writes into the buffer after this
  if (!part.KeepMemory(attempt)) {
    // The transport could not confirm the end of the receive and keeps the buffer with its memory. It counts
    // as delivered to the trainer, since it may never come back either: the head step can still get memory.
    attempt.buffer->MarkDelivered();
    if (auto step = steps_.find(part.name.step); step != steps_.end()) step->second.granted = false;
    uses_.log(absl::StrCat(DescribePart(part.name), ": ", uses_.sink->info().detail, " did not release ",
                           part.bytes, " bytes of receive memory, which are lost until this process ends (",
                           uses_.sink->buffers_abandoned(),
                           " buffers so far); check the network card and its driver"));
  }
  if (Worker* worker = workers_.Find(attempt.endpoint);
      worker != nullptr && worker->session == attempt.session) {
    worker->End(part.name.phase, attempt.accepted());
  }
}

// Rotation over workers leaves sessions behind that cost the worker memory and a connection.
void Fetcher::CloseIdleSessions(absl::Time now) {
  for (auto& [endpoint, worker] : workers_.all()) {
    bool idle = worker.state == Worker::State::kReady && worker.in_flight == 0 &&
                now - worker.last_used > kIdleSession;
    if (idle) EndSession(worker);
  }
  Release(workers_.TakeFinished());
}

// Workers that left the list: their last part has arrived, so sessions and channels can go.
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
