// What the workers and the transport say, and what follows from it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/fetch_loop.h"
#include "core/status.h"

namespace evenkeel {
namespace {

constexpr double kShortestRetrySeconds = 0.01;
constexpr double kLongestRetrySeconds = 30;
constexpr absl::Duration kFailureDelay = absl::Milliseconds(100);
constexpr absl::Duration kAvoidAfterDamage = absl::Seconds(2);
constexpr absl::Duration kDescribeDelay = absl::Milliseconds(50);

// Errors by which a worker says "not now" rather than "not this".
bool IsNotNow(absl::StatusCode code) {
  return code == absl::StatusCode::kResourceExhausted || code == absl::StatusCode::kAborted ||
         code == absl::StatusCode::kCancelled || code == absl::StatusCode::kUnavailable;
}

bool IsLost(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded ||
         code == absl::StatusCode::kCancelled || code == absl::StatusCode::kOk;
}

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace

void FetchLoop::Take(Event event, absl::Time now) {
  CallId call = event.call;
  std::visit(
      Overloaded{
          [](Woken&) {},
          [](WorkerDescription&) {},  // of a call made before the loop began
          [&](OpenedSession& opened) ABSL_NO_THREAD_SAFETY_ANALYSIS { TakeOpened(call, opened, now); },
          [&](StepDescription& description)
              ABSL_NO_THREAD_SAFETY_ANALYSIS { TakeDescription(call, std::move(description), now); },
          [&](PartEvent& part) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            if (auto ref = FindByCall(call); ref.has_value()) TakePartEvent(*ref, part, now);
          },
          [&](CallEnded& ended) ABSL_NO_THREAD_SAFETY_ANALYSIS { TakeCallEnded(call, ended.status, now); },
          [&](Received& received) ABSL_NO_THREAD_SAFETY_ANALYSIS { TakeReceived(received, now); },
          [&](EndpointsChanged& changed) ABSL_NO_THREAD_SAFETY_ANALYSIS { TakeEndpoints(changed, now); },
      },
      event.what);
}

void FetchLoop::TakeOpened(CallId call, const OpenedSession& opened, absl::Time now) {
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
    return LoseWorker(*worker, absl::StrCat("data plane: ", connected.message()), now);
  }
  worker->state = Worker::State::kReady;
  worker->since = worker->last_heard = worker->last_used = now;
  worker->in_flight = worker->unanswered = 0;
  worker->told_wait_seconds = 0;
  worker->refused_last = false;
}

void FetchLoop::TakeDescription(CallId call, StepDescription description, absl::Time now) {
  auto found = steps_.find(description.step);
  if (found == steps_.end() || found->second.describe_call != call) return;
  StepFetch& step = found->second;
  step.describe_call = 0;
  if (Worker* worker = workers_.Find(step.describe_endpoint); worker != nullptr) worker->last_heard = now;
  uint64_t total = 0;
  for (const PlannedPart& planned : description.parts) {
    // Each size is checked before it is added, so the sum cannot overflow: it stops at the first one too
    // many.
    total = uses_.memory->CanHold(planned.bytes) ? total + ReceiveMemory::RoundUp(planned.bytes) : UINT64_MAX;
    if (!uses_.memory->CanHold(total)) {
      step.error = absl::InvalidArgumentError(absl::StrCat(
          "step ", step.step, " does not fit into the receive memory: with ", DescribePart(planned.name),
          " (", planned.bytes, " bytes) it exceeds prefetch_bytes = ", uses_.memory->budget_bytes(),
          "; raise prefetch_bytes or lower the batch"));
      return;
    }
    PartFetch part;
    part.name = planned.name;
    part.bytes = planned.bytes;
    part.position = static_cast<uint32_t>(step.parts.size());
    step.parts.push_back(std::move(part));
  }
  step.description = std::move(description);
}

void FetchLoop::TakePartEvent(AttemptRef ref, const PartEvent& event, absl::Time now) {
  Attempt& attempt = ref.attempt();
  Worker* worker = workers_.Find(attempt.endpoint);
  if (worker == nullptr) return;
  worker->last_heard = now;
  bool first_answer = attempt.state == Attempt::State::kAsked && event.kind != PartEvent::Kind::kRefused;
  if (first_answer && event.kind != PartEvent::Kind::kFailed) {
    attempt.state = Attempt::State::kAccepted;
    attempt.advanced = now;
    worker->unanswered = std::max(0, worker->unanswered - 1);
    worker->refused_last = false;
    ++ref.part->copies_accepted;
  }
  switch (event.kind) {
    case PartEvent::Kind::kAccepted:
      attempt.queue = event.queue;
      return;
    case PartEvent::Kind::kRefused:
      return TakeRefusal(ref, event.retry_after_seconds, event.text, now);
    case PartEvent::Kind::kProgress:
      if (event.text != attempt.stage || event.done != attempt.done) attempt.advanced = now;
      attempt.stage = event.text;
      attempt.done = event.done;
      attempt.total = event.total;
      return;
    case PartEvent::Kind::kSent:
      if (event.length != ref.part->bytes) {
        return TakeFailure(
            ref, absl::StrCat("made ", event.length, " bytes where ", ref.part->bytes, " were planned"), "",
            now);
      }
      attempt.state = Attempt::State::kSent;
      attempt.advanced = now;
      return;
    case PartEvent::Kind::kFailed:
      if (IsNotNow(static_cast<absl::StatusCode>(event.code)) && event.exclude.empty()) {
        return TakeRefusal(ref, 0.2, event.text, now);
      }
      return TakeFailure(ref, event.text, event.exclude, now);
  }
}

void FetchLoop::TakeRefusal(AttemptRef ref, double retry_after_seconds, const std::string& reason,
                            absl::Time now) {
  ++stats_.refused;
  ++ref.part->refusals;
  // Dropped before it was begun: no work was lost, so the next copy is no duplicate.
  if (ref.attempt().state != Attempt::State::kAsked && ref.part->copies_accepted > 0)
    --ref.part->copies_accepted;
  Worker* worker = workers_.Find(ref.attempt().endpoint);
  EndAttempt(*ref.part, ref.index);
  if (worker == nullptr) return;
  bool sane = retry_after_seconds >= kShortestRetrySeconds;  // not where it is NaN
  double seconds = sane ? std::min(retry_after_seconds, kLongestRetrySeconds) : kShortestRetrySeconds;
  uint64_t step = ref.step->step;
  worker->busy_step = now < worker->busy_until ? std::min(worker->busy_step, step) : step;
  worker->busy_until = std::max(worker->busy_until, now + Jittered(absl::Seconds(seconds)));
  worker->refused_last = true;
  worker->trouble = absl::StrCat("refused: ", reason);
}

void FetchLoop::TakeFailure(AttemptRef ref, const std::string& message, const std::string& exclude,
                            absl::Time now) {
  PartFetch& part = *ref.part;
  std::string endpoint = ref.attempt().endpoint;
  part.failed.push_back({endpoint, message, exclude});
  uses_.log(absl::StrCat(DescribePart(part.name), " failed on ", endpoint, ": ", message));
  EndAttempt(part, ref.index);
  part.not_before = now + Jittered(kFailureDelay * (1 << std::min<size_t>(part.failed.size() - 1, 6)));
  absl::Status verdict = part.Verdict(workers_.num_listed());
  if (!verdict.ok()) ref.step->error = verdict;
}

void FetchLoop::TakeCallEnded(CallId call, const absl::Status& status, absl::Time now) {
  if (Worker* worker = workers_.FindByOpenCall(call); worker != nullptr) {
    std::string reason = absl::StrCat("cannot open a session: ", status.message());
    if (status.code() == absl::StatusCode::kFailedPrecondition) return RejectWorker(*worker, reason, now);
    return LoseWorker(*worker, reason, now);
  }
  if (auto ref = FindByCall(call); ref.has_value()) return TakeStreamEnded(*ref, status, now);
  for (auto& [number, step] : steps_) {
    if (step.describe_call == call) return TakeDescribeFailed(step, status, now);
  }
}

void FetchLoop::TakeStreamEnded(AttemptRef ref, const absl::Status& status, absl::Time now) {
  Attempt& attempt = ref.attempt();
  if (status.ok() && attempt.state == Attempt::State::kSent) return;  // its bytes are on the way
  Worker* worker = workers_.Find(attempt.endpoint);
  if (worker == nullptr) return EndAttempt(*ref.part, ref.index);
  if (status.code() == absl::StatusCode::kNotFound) {
    // The session had been idle for too long, or the worker was restarted: another session, no blame.
    std::string reason = absl::StrCat("session ended: ", status.message());
    EndSession(*worker);
    worker->state = Worker::State::kAway;
    worker->until = now + Jittered(absl::Milliseconds(20) * (1 << std::min(worker->failures++, 8)));
    worker->trouble = reason;
    return;
  }
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    return TakeRefusal(ref, 0.2, std::string(status.message()), now);
  }
  if (IsLost(status.code())) {
    std::string reason = status.ok() ? "it ended a request without an answer" : std::string(status.message());
    return LoseWorker(*worker, reason, now);
  }
  TakeFailure(ref, std::string(status.message()), "", now);
}

void FetchLoop::TakeDescribeFailed(StepFetch& step, const absl::Status& status, absl::Time now) {
  step.describe_call = 0;
  step.describe_not_before = now + Jittered(kDescribeDelay);
  step.describe_avoid[step.describe_endpoint] = now + Jittered(absl::Seconds(1));
  std::string message = absl::StrCat(step.describe_endpoint, ": ", status.message());
  Worker* worker = workers_.Find(step.describe_endpoint);
  if (status.code() == absl::StatusCode::kDeadlineExceeded) {
    // Planning may take its time: the next worker is given more, within what Next waits for.
    step.patience = std::min(2 * step.patience, options_.step_timeout);
    bool silent = worker != nullptr && now - worker->last_heard >= options_.progress_timeout;
    if (silent && worker->in_flight == 0) LoseWorker(*worker, "no answer to a description", now);
    return;
  }
  if (worker != nullptr && status.code() == absl::StatusCode::kNotFound) {
    EndSession(*worker);
    worker->state = Worker::State::kAway;
    worker->until = now + Jittered(absl::Milliseconds(20) * (1 << std::min(worker->failures++, 8)));
    worker->trouble = absl::StrCat("session ended: ", status.message());
    return;
  }
  if (worker != nullptr && IsLost(status.code()))
    return LoseWorker(*worker, std::string(status.message()), now);
  if (IsNotNow(status.code())) {
    step.describe_not_before = now + Jittered(absl::Milliseconds(200));
    return;
  }
  step.describe_failed.push_back({step.describe_endpoint, message, ""});
  std::set<std::string> distinct;
  for (const FailedAttempt& attempt : step.describe_failed) distinct.insert(attempt.endpoint);
  bool few = workers_.num_listed() < kDistinctWorkers && step.describe_failed.size() >= kDistinctWorkers;
  if (distinct.size() >= kDistinctWorkers || few || step.describe_failed.size() >= kMaxFailedAttempts) {
    step.error =
        absl::Status(status.code(), absl::StrCat("step ", step.step, " could not be planned: ", message));
  }
}

void FetchLoop::TakeReceived(const Received& received, absl::Time now) {
  auto ref = FindByRequest(received.request);
  if (!ref.has_value()) return;  // cancelled meanwhile
  if (received.status.ok()) return TakeBytes(*ref, now);
  Attempt& attempt = ref->attempt();
  std::string endpoint = attempt.endpoint;
  if (received.status.code() == absl::StatusCode::kDataLoss) {
    ++stats_.hash_failures;
    ++ref->part->damaged;
    ref->part->avoid[endpoint] = now + Jittered(kAvoidAfterDamage);
    uses_.log(absl::StrCat(DescribePart(ref->part->name), " from ", endpoint, ": ", received.status.message(),
                           "; asked again"));
    EndAttempt(*ref->part, ref->index);
    if (workers_.num_listed() <= 1) ref->part->avoid.clear();
    absl::Status verdict = ref->part->Verdict(workers_.num_listed());
    if (!verdict.ok()) ref->step->error = verdict;
    return;
  }
  Worker* worker = workers_.Find(endpoint);
  if (worker == nullptr) return EndAttempt(*ref->part, ref->index);
  LoseWorker(*worker, absl::StrCat("data plane: ", received.status.message()), now);
}

// The buffer is full and its hash is the sender's.
void FetchLoop::TakeBytes(AttemptRef ref, absl::Time now) {
  PartFetch& part = *ref.part;
  Attempt& attempt = ref.attempt();
  absl::StatusOr<PartView> view = ReadPart(attempt.buffer->bytes());
  if (!view.ok()) return TakeFailure(ref, std::string(view.status().message()), "", now);
  if (view->name != part.name) {
    return TakeFailure(ref, absl::StrCat("sent ", DescribePart(view->name)), "", now);
  }
  if (Worker* worker = workers_.Find(attempt.endpoint); worker != nullptr) {
    worker->failures = 0;
    worker->last_heard = now;
    worker->in_flight = std::max(0, worker->in_flight - 1);
    if (attempt.state == Attempt::State::kAsked) worker->unanswered = std::max(0, worker->unanswered - 1);
  }
  part.complete = true;
  part.view = *std::move(view);
  part.buffer = std::move(*attempt.buffer);
  // The winner's call is left to end by itself; the loser is cancelled.
  part.attempts.erase(part.attempts.begin() + static_cast<ptrdiff_t>(ref.index));
  --num_attempts_;
  while (!part.attempts.empty()) EndAttempt(part, part.attempts.size() - 1);
  part.spare.reset();
  ++ref.step->num_complete;
}

void FetchLoop::TakeEndpoints(const EndpointsChanged& changed, absl::Time now) {
  (void)now;
  endpoints_error_ = changed.status;
  if (changed.status.ok()) Release(workers_.SetListed(changed.sorted));
}

}  // namespace evenkeel
