// What an event means: translates each message of the workers and the transport into transitions of steps,
// parts and workers.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/fetcher.h"
#include "core/failure.h"
#include "core/status.h"
#include "transport/address.h"

namespace evenkeel::client {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

// Linear search: at most MaxInFlight attempts exist.
std::optional<AttemptRef> FindByCall(StepWindow& steps, CallId call) {
  return FindAttempt(steps, [call](const Attempt& attempt) { return attempt.call == call; });
}

}  // namespace

void Fetcher::Take(Event event, absl::Time now) {
  CallId call = event.call;
  std::visit(Overloaded{
                 [](Woken&) {},
                 // Answers of the first contact, which ended before the loop began.
                 [](WorkerDescription&) {},  // a late answer to the first contact
                 [&](OpenedSession& opened) { TakeOpened(call, opened, now); },
                 [&](StepDescription& description) { TakeDescription(call, std::move(description), now); },
                 [&](PartEvent& part) {
                   if (auto ref = FindByCall(steps_, call); ref.has_value()) TakePartEvent(*ref, part, now);
                 },
                 [&](CallEnded& ended) { TakeCallEnded(call, ended.status, now); },
                 [&](Received& received) { TakeReceived(received, now); },
                 [&](EndpointsChanged& changed) { TakeEndpoints(changed); },
             },
             event.what);
}

// The answer to OpenSession. The worker may have been replaced since the first contact, so its digests are
// checked again before it may serve.
void Fetcher::TakeOpened(CallId call, const OpenedSession& opened, absl::Time now) {
  Worker* worker = workers_.FindByOpenCall(call);
  if (worker == nullptr) return;
  worker->session = opened.id;
  if (absl::Status agrees = CheckPinned(opened.worker, pinned_); !agrees.ok()) {
    uses_.control->CloseSession(worker->endpoint, opened.id, absl::Seconds(1));
    return RejectWorker(*worker, std::string(agrees.message()), now);
  }
  absl::Status connected = uses_.sink->Connect(opened.id, worker->endpoint, opened.address, worker->secret);
  if (!connected.ok()) {
    uses_.control->CloseSession(worker->endpoint, opened.id, absl::Seconds(1));
    if (!worker->memory_refused && !uses_.sink->memory_address().empty() &&
        transport::IsMemoryOfThisHost(opened.address)) {
      worker->memory_refused = true;
      uses_.log(absl::StrCat("worker ", worker->endpoint, " is on this machine, but its parts travel over ",
                             uses_.sink->info().name, ": ", connected.message()));
      return OpenSession(*worker, now);
    }
    return LoseWorker(*worker, absl::StrCat("data plane: ", connected.message()), now);
  }
  worker->BeginSession(now);
}

// A description of a step that was dropped, or asked of another worker meanwhile, is ignored.
void Fetcher::TakeDescription(CallId call, StepDescription description, absl::Time now) {
  auto found = steps_.find(description.step);
  if (found == steps_.end() || found->second.asking.call() != call) return;
  StepFetch& step = found->second;
  if (Worker* worker = workers_.Find(step.asking.endpoint()); worker != nullptr) {
    worker->last_heard = now;
    worker->standing.End(kDescriptions);
    worker->standing.Finish(kDescriptions, step.asking.asked(), now);
  }
  step.Describe(std::move(description), *uses_.memory);
}

void Fetcher::TakePartEvent(AttemptRef ref, const PartEvent& event, absl::Time now) {
  Attempt& attempt = ref.attempt();
  PartFetch& part = *ref.part;
  Worker* worker = workers_.Find(attempt.endpoint);
  if (worker == nullptr) return;
  worker->last_heard = now;
  // A worker may skip the event kAccepted and report progress at once; both mean that it took the request.
  const bool takes_it = event.kind != PartEvent::Kind::kRefused && event.kind != PartEvent::Kind::kFailed;
  if (takes_it && part.Accept(ref.index, now)) worker->Accept();
  switch (event.kind) {
    case PartEvent::Kind::kAccepted:
      attempt.queue = event.queue;
      return;
    case PartEvent::Kind::kRefused:
      return TakeRefusal(ref, event.retry_after_seconds, event.text, now);
    case PartEvent::Kind::kProgress:
      if (part.Advance(ref.index, event, now)) worker->standing.Move(part.name.phase, now);
      return;
    // The planned length is the buffer's length, and every worker plans the same: another length is an error
    // of this worker.
    case PartEvent::Kind::kSent:
      if (event.length != part.bytes) {
        return TakeFailure(
            ref, absl::StrCat("made ", event.length, " bytes where ", part.bytes, " were planned"), "", now);
      }
      return part.MarkSent(ref.index, now);
    case PartEvent::Kind::kFailed:
      // Failures of the machine do not count towards the verdict that the data is bad.
      if (event.failure == FailureKind::kMachine || event.failure == FailureKind::kNotYet) {
        return TakeTrouble(ref, event.text, now);
      }
      return TakeFailure(ref, event.text, event.exclude, now);
  }
}

// The worker is full. It keeps its session and is asked for steps from this one on only after the pause.
void Fetcher::TakeRefusal(AttemptRef ref, double retry_after_seconds, const std::string& reason,
                          absl::Time now) {
  ++stats_.refused;
  ++ref.part->refusals;
  ref.part->WithdrawAcceptance(ref.index);
  Worker* worker = workers_.Find(ref.attempt().endpoint);
  EndAttempt(*ref.part, ref.index);
  if (worker == nullptr) return;
  worker->Refuse(ref.step->step, now + jitter_(AfterRefusal(retry_after_seconds)), reason, now);
}

// The attempt failed in a way that may be the data's fault: after three distinct workers it is
// (PartFetch::Verdict).
void Fetcher::TakeFailure(AttemptRef ref, const std::string& message, const std::string& exclude,
                          absl::Time now) {
  PartFetch& part = *ref.part;
  std::string endpoint = ref.attempt().endpoint;
  uses_.log(absl::StrCat(DescribePart(part.name), " failed on ", endpoint, ": ", message));
  EndAttempt(part, ref.index);
  part.AddFailure({endpoint, message, exclude}, jitter_(AfterFailure(part.failed.size() + 1)), now);
  ref.step->Judge(part, workers_.num_listed());
}

void Fetcher::TakeTrouble(AttemptRef ref, const std::string& message, absl::Time now) {
  PartFetch& part = *ref.part;
  const std::string endpoint = ref.attempt().endpoint;
  part.WithdrawAcceptance(ref.index);
  EndAttempt(part, ref.index);
  MachineTrouble& trouble = part.troubles[endpoint];
  // Logged once per message, not per retry: a machine may fail for minutes.
  if (trouble.message != message) {
    uses_.log(absl::StrCat(DescribePart(part.name), " failed on ", endpoint, ": ", message,
                           "; the request is retried, the data is not at fault"));
  }
  part.avoid[endpoint] = now + jitter_(trouble.Add(message, now));
  if (Worker* worker = workers_.Find(endpoint); worker != nullptr) worker->trouble = message;
}

// A call number belongs to the opening of a session, to a part, or to a description.
void Fetcher::TakeCallEnded(CallId call, const absl::Status& status, absl::Time now) {
  if (Worker* worker = workers_.FindByOpenCall(call); worker != nullptr) {
    std::string reason = absl::StrCat("cannot open a session: ", status.message());
    if (status.code() == absl::StatusCode::kFailedPrecondition) return RejectWorker(*worker, reason, now);
    return LoseWorker(*worker, reason, now);
  }
  if (auto ref = FindByCall(steps_, call); ref.has_value()) return TakeStreamEnded(*ref, status, now);
  for (auto& [number, step] : steps_) {
    if (step.asking.call() == call) return TakeDescribeFailed(step, status, now);
  }
}

void Fetcher::TakeStreamEnded(AttemptRef ref, const absl::Status& status, absl::Time now) {
  Attempt& attempt = ref.attempt();
  if (status.ok() && attempt.state == Attempt::State::kSent) return;  // its bytes are still arriving
  Worker* worker = workers_.Find(attempt.endpoint);
  if (worker == nullptr) return EndAttempt(*ref.part, ref.index);
  if (status.code() == absl::StatusCode::kNotFound) {
    // The session was idle for too long, or the worker was restarted. Another session is opened; no failure
    // is counted.
    std::string reason = absl::StrCat("session ended: ", status.message());
    return ReopenSession(*worker, reason, now);
  }
  // gRPC itself refused the stream (too many at once): treated as a refusal without a retry time.
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    return TakeRefusal(ref, kRefusedStreamSeconds, std::string(status.message()), now);
  }
  if (IsLost(status.code())) {
    std::string reason = status.ok() ? "it ended a request without an answer" : std::string(status.message());
    return LoseWorker(*worker, reason, now);
  }
  TakeFailure(ref, std::string(status.message()), "", now);
}

void Fetcher::TakeDescribeFailed(StepFetch& step, const absl::Status& status, absl::Time now) {
  DescriptionFetch& asking = step.asking;
  Worker* worker = workers_.Find(asking.endpoint());
  if (worker != nullptr) worker->standing.End(kDescriptions);
  // Fail classifies the status and sets the pause; what remains is its effect on the worker.
  switch (asking.Fail(status, worker != nullptr, options_.step_timeout, jitter_, now)) {
    case DescriptionFetch::Failure::kLate: {
      if (worker == nullptr) return;
      if (now - asking.asked() < options_.progress_timeout * 0.9) {
        // A worker on trial gets less time than others, so this shows nothing about its session.
        worker->standing.PassOver(kDescriptions, asking.asked(), now, jitter_(options_.progress_timeout));
        return;
      }
      MarkStall(*worker, kDescriptions, asking.asked(), asking.asked(), now);
      const bool silent = now - worker->last_heard >= options_.progress_timeout;
      if (silent && worker->in_flight == 0) LoseWorker(*worker, "no answer to a description", now);
      return;
    }
    case DescriptionFetch::Failure::kSessionEnded:
      return ReopenSession(*worker, absl::StrCat("session ended: ", status.message()), now);
    case DescriptionFetch::Failure::kWorkerLost:
      return LoseWorker(*worker, std::string(status.message()), now);
    case DescriptionFetch::Failure::kPlan:
      if (absl::Status verdict = asking.Verdict(step.step, workers_.num_listed()); !verdict.ok())
        step.error = verdict;
      return;
    case DescriptionFetch::Failure::kNotYet:
    case DescriptionFetch::Failure::kMachine:
    case DescriptionFetch::Failure::kBusy:
      return;  // retried after a pause
  }
}

// The data plane's verdict on one buffer: complete, damaged (the hash differs), or the connection failed.
void Fetcher::TakeReceived(const Received& received, absl::Time now) {
  auto ref = FindAttempt(steps_, [&](const Attempt& attempt) { return attempt.request == received.request; });
  if (!ref.has_value()) return;  // cancelled before
  if (received.status.ok()) return TakeBytes(*ref, now);
  if (received.status.code() == absl::StatusCode::kDataLoss) return TakeDamage(*ref, received.status, now);
  Worker* worker = workers_.Find(ref->attempt().endpoint);
  if (worker == nullptr) return EndAttempt(*ref->part, ref->index);
  LoseWorker(*worker, absl::StrCat("data plane: ", received.status.message()), now);
}

// The hash of the received bytes differs from the sender's. The network is at fault, not the worker: only
// this part avoids it, for a while.
void Fetcher::TakeDamage(AttemptRef ref, const absl::Status& status, absl::Time now) {
  PartFetch& part = *ref.part;
  const std::string endpoint = ref.attempt().endpoint;
  ++stats_.hash_failures;
  uses_.log(
      absl::StrCat(DescribePart(part.name), " from ", endpoint, ": ", status.message(), "; requested again"));
  EndAttempt(part, ref.index);
  part.AddDamage(endpoint, jitter_(kAfterDamage), now);
  // With a single worker there is nobody else to ask.
  if (workers_.num_listed() <= 1) part.avoid.clear();
  ref.step->Judge(part, workers_.num_listed());
}

// All bytes have arrived and their hash is the sender's. A part with another name is a bug of the worker and
// counts as a failure.
void Fetcher::TakeBytes(AttemptRef ref, absl::Time now) {
  PartFetch& part = *ref.part;
  Attempt& attempt = ref.attempt();
  absl::StatusOr<PartView> view = ReadPart(attempt.buffer->bytes());
  if (!view.ok()) return TakeFailure(ref, std::string(view.status().message()), "", now);
  if (view->name != part.name) {
    return TakeFailure(ref, absl::StrCat("sent ", DescribePart(view->name)), "", now);
  }
  if (Worker* worker = workers_.Find(attempt.endpoint); worker != nullptr) {
    worker->End(part.name.phase, attempt.accepted());
    worker->Finish(part.name.phase, attempt.asked, now);
  }
  if (!attempt.on_trial) {
    // Moving mean with weight 1/4, of trusted workers only: it bounds how long a worker on trial may take.
    absl::Duration& mean = part_time_[part.name.phase.number()];
    mean += (now - attempt.asked - mean) / 4;
  }
  // The winner's call ends by itself; the losers are cancelled.
  ref.step->Complete(part, ref.index, *std::move(view));
  --num_attempts_;
  while (!part.attempts.empty()) EndAttempt(part, part.attempts.size() - 1);
}

void Fetcher::TakeEndpoints(const EndpointsChanged& changed) {
  endpoints_error_ = changed.status;
  // A failed lookup keeps the last list: workers that are connected go on serving.
  if (changed.status.ok()) Release(workers_.SetListed(changed.sorted));
}

}  // namespace evenkeel::client
