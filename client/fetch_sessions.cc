// Sessions and attempts begin and end here.
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/fetch_loop.h"
#include "core/job.h"
#include "core/status.h"

namespace evenkeel {
namespace {

constexpr absl::Duration kOpenTimeout = absl::Seconds(5);
constexpr absl::Duration kCloseTimeout = absl::Seconds(1);
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(200);
constexpr absl::Duration kLongestBackoff = absl::Seconds(15);
constexpr absl::Duration kRejectedFor = absl::Seconds(30);

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

void FetchLoop::OpenSession(Worker& worker, absl::Time now) {
  if (absl::Status may = uses_.may_dial(worker.endpoint); !may.ok()) {
    return RejectWorker(worker, std::string(may.message()), now);
  }
  worker.state = Worker::State::kOpening;
  worker.since = now;
  worker.secret = FreshSecret();
  SessionRequest request;
  request.stream_digest = pinned_.stream_digest;
  request.layout_digest = pinned_.layout_digest;
  request.stream_version = pinned_.stream_version;
  request.rank = options_.rank;
  request.transport = uses_.sink->info().name;
  request.address = uses_.sink->address();
  request.secret = worker.secret;
  worker.open_call =
      uses_.control->OpenSession(worker.endpoint, request, std::min(kOpenTimeout, options_.progress_timeout));
}

void FetchLoop::EndSession(Worker& worker) {
  if (worker.state == Worker::State::kOpening) uses_.control->Cancel(worker.open_call);
  if (worker.state != Worker::State::kReady) return;
  worker.state = Worker::State::kIdle;
  for (auto& [number, step] : steps_) {
    for (PartFetch& part : step.parts) {
      for (size_t i = part.attempts.size(); i-- > 0;) {
        if (part.attempts[i].endpoint == worker.endpoint) EndAttempt(part, i);
      }
    }
  }
  uses_.sink->Disconnect(worker.session);
  uses_.control->CloseSession(worker.endpoint, worker.session, kCloseTimeout);
  worker.in_flight = 0;
  worker.unanswered = 0;
  worker.refused_last = false;
  worker.busy_until = absl::InfinitePast();
}

void FetchLoop::LoseWorker(Worker& worker, const std::string& reason, absl::Time now) {
  bool was_ready = worker.state == Worker::State::kReady;
  EndSession(worker);
  if (was_ready) {
    ++stats_.replaced_workers;
    uses_.log(
        absl::StrCat("worker ", worker.endpoint, " is lost: ", reason, "; its parts are asked of others"));
  }
  absl::Duration backoff = kFirstBackoff * (1 << std::min(worker.failures, 10));
  ++worker.failures;
  worker.state = Worker::State::kAway;
  worker.since = now;
  worker.until = now + Jittered(std::min(backoff, kLongestBackoff));
  worker.trouble = reason;
  uses_.look_for_workers();
}

void FetchLoop::RejectWorker(Worker& worker, const std::string& reason, absl::Time now) {
  if (worker.trouble != reason) uses_.log(absl::StrCat("worker ", worker.endpoint, " is refused: ", reason));
  EndSession(worker);
  worker.state = Worker::State::kRejected;
  worker.since = now;
  worker.until = now + Jittered(kRejectedFor);
  worker.trouble = reason;
}

void FetchLoop::EndAttempt(PartFetch& part, size_t index) {
  Attempt attempt = std::move(part.attempts[index]);
  part.attempts.erase(part.attempts.begin() + static_cast<ptrdiff_t>(index));
  uses_.control->Cancel(attempt.call);
  uses_.sink->Cancel(attempt.session, attempt.request);  // from here on nothing writes into the buffer
  if (attempt.buffer.use_count() > 1) {
    // But one that the transport keeps, with its memory. It counts as the trainer's, who holds what does not
    // come back, so that the head step still gets its own.
    attempt.buffer->MarkDelivered();
    if (auto step = steps_.find(part.name.step); step != steps_.end()) step->second.granted = false;
    uses_.log(absl::StrCat(DescribePart(part.name), ": ", uses_.sink->info().detail, " did not give back ",
                           part.bytes, " bytes of receive memory, which are lost until this process ends (",
                           uses_.sink->buffers_abandoned(),
                           " buffers so far); check the network card and its driver"));
  } else if (!part.complete && !part.spare.has_value()) {
    part.spare = std::move(*attempt.buffer);
  }
  --num_attempts_;
  if (Worker* worker = workers_.Find(attempt.endpoint);
      worker != nullptr && worker->session == attempt.session) {
    worker->in_flight = std::max(0, worker->in_flight - 1);
    if (attempt.state == Attempt::State::kAsked) worker->unanswered = std::max(0, worker->unanswered - 1);
  }
  // A copy that was doubted because of this one stands alone again.
  for (Attempt& other : part.attempts) other.doubted = false;
}

std::optional<FetchLoop::AttemptRef> FetchLoop::FindByCall(CallId call) {
  for (auto& [number, step] : steps_) {
    for (PartFetch& part : step.parts) {
      for (size_t i = 0; i < part.attempts.size(); ++i) {
        if (part.attempts[i].call == call) return AttemptRef{&step, &part, i};
      }
    }
  }
  return std::nullopt;
}

std::optional<FetchLoop::AttemptRef> FetchLoop::FindByRequest(uint64_t request) {
  for (auto& [number, step] : steps_) {
    for (PartFetch& part : step.parts) {
      for (size_t i = 0; i < part.attempts.size(); ++i) {
        if (part.attempts[i].request == request) return AttemptRef{&step, &part, i};
      }
    }
  }
  return std::nullopt;
}

void FetchLoop::Release(const std::vector<Worker>& finished) {
  for (const Worker& worker : finished) {
    if (worker.state == Worker::State::kReady) {
      uses_.sink->Disconnect(worker.session);
      uses_.control->CloseSession(worker.endpoint, worker.session, kCloseTimeout);
    }
    uses_.control->Forget(worker.endpoint);
  }
}

}  // namespace evenkeel
