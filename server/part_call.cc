// One RequestPart call: its way from the plan to the last byte sent, and the queue of its events. gRPC allows
// one write at a time, so events from several threads are queued and written one after the other.
#include "server/part_call.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/failure.h"
#include "core/part_role.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "telemetry/event_log.h"

namespace evenkeel::server {
namespace {

constexpr absl::Duration kNotYetRetry = absl::Seconds(1);  // while the sampler works towards a far step

pb::PartEvent ProgressEvent(std::string_view stage, uint64_t done, uint64_t total) {
  pb::PartEvent event;
  event.mutable_progress()->set_stage(std::string(stage));
  event.mutable_progress()->set_done(done);
  event.mutable_progress()->set_total(total);
  return event;
}

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  std::string detail;
  if (!status.ok()) {
    pb::FailureDetail failure;
    failure.set_kind(static_cast<pb::FailureKind>(KindOf(status)));
    detail = failure.SerializeAsString();
  }
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()), detail);
}

void CallRegister::Add(std::shared_ptr<PartCall> call) {
  MutexLock lock(mutex_);
  PartCall* key = call.get();
  calls_.emplace(key, std::move(call));
}

void CallRegister::Remove(PartCall* call) {
  std::shared_ptr<PartCall> last;  // its destructor runs after the lock is released
  MutexLock lock(mutex_);
  const auto found = calls_.find(call);
  if (found == calls_.end()) return;
  last = std::move(found->second);
  calls_.erase(found);
  removed_.NotifyAll();
}

std::vector<std::shared_ptr<PartCall>> CallRegister::All() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<PartCall>> all;
  for (const auto& [key, call] : calls_) all.push_back(call);
  return all;
}

size_t CallRegister::size() const {
  MutexLock lock(mutex_);
  return calls_.size();
}

bool CallRegister::WaitUntilEmpty(absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  MutexLock lock(mutex_);
  while (!calls_.empty() && removed_.WaitUntil(mutex_, deadline)) continue;
  return calls_.empty();
}

PartCall* PartCall::Start(const WorkerService::Uses& uses, CallRegister& calls, bool draining,
                          grpc::CallbackServerContext& context, const pb::RequestPartRequest& request) {
  // gRPC's deadline is wall-clock time; it is converted to the steady clock, which nobody sets.
  const absl::Duration left = absl::FromChrono(context.deadline()) - absl::Now();
  auto call = std::make_shared<PartCall>(uses, calls, SteadyNow() + left, request);
  PartCall* raw = call.get();
  calls.Add(call);
  call->Begin(draining);
  return raw;
}

PartCall::PartCall(const WorkerService::Uses& uses, CallRegister& calls, absl::Time deadline,
                   const pb::RequestPartRequest& request)
    : uses_(uses), calls_(calls), deadline_(deadline), request_(request) {}

// ---- The stages of a request: session, plan, pool, transport

void PartCall::Begin(bool draining) {
  if (absl::Status entered = Enter(); !entered.ok()) {
    return Finally(std::nullopt, {telemetry::Outcome::kFailed, ToGrpc(entered)}, /*is_answer=*/true);
  }
  if (draining)
    return Refuse(absl::Seconds(2), "the worker is draining; ask another", telemetry::Outcome::kRefused,
                  true);
  uses_.planner.Get(request_.step(),
                    [self = shared_from_this()](auto plan) { self->TakePlan(std::move(plan)); });
}

absl::Status PartCall::Enter() {
  EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, uses_.sessions.Find(request_.session_id()));
  const PhaseSpec* const spec = uses_.builder.job().FindPhase(request_.phase());
  if (spec == nullptr || request_.request_id() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("RequestPart: phase '", request_.phase(), "', request_id ", request_.request_id()));
  }
  if (request_.role() > static_cast<uint32_t>(PartRole::kLast) ||
      !RoleReceives(static_cast<PartRole>(request_.role()), spec->phase)) {
    return absl::InvalidArgumentError(absl::StrCat("RequestPart: role ", request_.role(),
                                                   " receives no parts of phase ", request_.phase()));
  }
  role_ = static_cast<PartRole>(request_.role());
  name_ = {.phase = spec->phase,
           .step = request_.step(),
           .rank = request_.phase_rank(),
           .microbatch = request_.microbatch(),
           .piece = request_.piece()};
  uses_.metrics.AddConsumerWait(session->TakeWait(request_.consumer_wait_seconds()));
  if (request_.attempt() > 0) uses_.metrics.CountDuplicateRequest();
  transport_ = session->transport;
  open_.emplace(std::move(session));
  return absl::OkStatus();
}

void PartCall::TakePlan(absl::StatusOr<std::shared_ptr<const stream::StepPlan>> plan) {
  if (KindOf(plan.status()) == FailureKind::kNotYet) {
    return Refuse(kNotYetRetry, std::string(plan.status().message()), telemetry::Outcome::kRefused,
                  /*is_answer=*/true);
  }
  if (!plan.ok()) return Fail(plan.status(), /*is_answer=*/true);
  absl::StatusOr<std::unique_ptr<stream::PartTask>> task = uses_.builder.Prepare(*std::move(plan), name_);
  if (!task.ok()) return Fail(task.status(), /*is_answer=*/true);
  role_bytes_ = CutBytes(**task, role_);
  if (absl::Status fits = uses_.pool.CheckFits(**task, role_bytes_); !fits.ok()) {
    return Fail(fits, /*is_answer=*/true);
  }
  {
    MutexLock lock(mutex_);
    if (cancelled_) return;
  }
  // The pool may call back before this returns; events wait until Answer has queued the first one.
  PartPool::Answer answer = uses_.pool.Request(*std::move(task), shared_from_this());
  if (!answer.accepted && answer.ready == nullptr) {
    return Refuse(answer.retry_after, answer.why, telemetry::Outcome::kRefused, /*is_answer=*/true);
  }
  pb::PartEvent accepted;
  accepted.mutable_accepted()->set_queue(answer.queue);
  Answer(std::move(accepted));
  if (answer.ready != nullptr) return Send(std::move(answer.ready));
  bool cancelled = false;
  {
    MutexLock lock(mutex_);
    ticket_ = answer.ticket;
    cancelled = cancelled_;
  }
  // OnCancel ran before the ticket was known, so the request is cancelled here.
  if (cancelled) uses_.pool.Cancel(answer.ticket);
}

void PartCall::OnProgress(std::string_view stage, uint64_t done, uint64_t total) {
  Post(ProgressEvent(stage, done, total));
}

void PartCall::OnReady(std::shared_ptr<const ReadyPart> part) { Send(std::move(part)); }

void PartCall::OnDropped(absl::Duration retry_after, const std::string& why) {
  Refuse(retry_after, why, telemetry::Outcome::kDropped);
}

void PartCall::OnFailed(const absl::Status& status) { Fail(status); }

void PartCall::Send(std::shared_ptr<const ReadyPart> part) {
  const absl::Time begin = SteadyNow();
  if (role_bytes_ != 0) {
    absl::StatusOr<std::shared_ptr<const ReadyPart>> cut = uses_.pool.Cut(*part, role_, role_bytes_);
    if (!cut.ok()) return Fail(cut.status());
    part = *std::move(cut);
  }
  {
    MutexLock lock(mutex_);
    if (cancelled_ || end_.has_value()) return;
    sending_ = true;
  }
  const absl::Duration timeout = std::min(uses_.send_timeout, deadline_ - begin);
  const ReadyPart& sent = *part;
  open_->session().source->Send(
      open_->session().id, request_.request_id(), sent.bytes(), sent.hash(), timeout,
      [self = shared_from_this(), part = std::move(part), begin](const absl::Status& status) {
        self->TakeSent(*part, begin, status);
      });
}

void PartCall::TakeSent(const ReadyPart& part, absl::Time begin, const absl::Status& status) {
  if (!status.ok()) {
    if (absl::IsCancelled(status)) {
      // The consumer closed its session: it has all it needs, or will ask another worker.
      return Finally(std::nullopt, {telemetry::Outcome::kCancelled,
                                    grpc::Status(grpc::StatusCode::CANCELLED, "session closed")});
    }
    // The transport has closed the peer, so the session cannot be used any longer.
    if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) open_->session().dead = true;
    return Fail(
        absl::UnavailableError(absl::StrCat("sending ", DescribePart(name_), ": ", status.message())));
  }
  uses_.metrics.ObserveStage(telemetry::Stage::kSend, SteadyNow() - begin);
  uses_.metrics.CountSent(transport_, part.bytes().size());
  pb::PartEvent event;
  event.mutable_sent()->set_length(part.bytes().size());
  event.mutable_sent()->set_hash(part.hash().bytes.data(), part.hash().bytes.size());
  Finally(std::move(event), {telemetry::Outcome::kSent, grpc::Status::OK});
}

void PartCall::Tick() {
  uint64_t ticks = 0;
  {
    MutexLock lock(mutex_);
    if (!sending_ || end_.has_value()) return;
    ticks = ++send_ticks_;
  }
  // Reports only that the send continues; send_timeout bounds its time.
  Post(ProgressEvent("sending", ticks, ticks));
}

// ---- Events

void PartCall::Answer(pb::PartEvent event) {
  {
    MutexLock lock(mutex_);
    events_.push_front(std::move(event));
    answered_ = true;
  }
  Advance();
}

void PartCall::Post(pb::PartEvent event) {
  {
    MutexLock lock(mutex_);
    if (end_.has_value()) return;
    if (!events_.empty() && events_.back().has_progress()) {
      events_.back() = std::move(event);
    } else {
      events_.push_back(std::move(event));
    }
  }
  Advance();
}

void PartCall::Finally(std::optional<pb::PartEvent> event, End end, bool is_answer) {
  {
    MutexLock lock(mutex_);
    if (end_.has_value()) return;
    if (event.has_value()) events_.push_back(*std::move(event));
    if (is_answer) answered_ = true;
    uses_.metrics.CountRequest(end.outcome);
    end_ = std::move(end);
    sending_ = false;
  }
  Advance();
}

void PartCall::Fail(const absl::Status& status, bool is_answer) {
  // Lack of memory is a refusal: the consumer asks again or elsewhere, and nothing counts against the data.
  if (absl::IsResourceExhausted(status)) {
    return Refuse(absl::Milliseconds(200), std::string(status.message()), telemetry::Outcome::kRefused,
                  is_answer);
  }
  const FailureKind kind = KindOf(status);
  const std::string exclude = stream::ExcludeLine(status);
  uses_.metrics.CountError(absl::StrCat("attempt_", absl::StatusCodeToString(status.code())));
  telemetry::LogEvent(telemetry::LogLevel::kWarning, "attempt_failed",
                      {{"part", DescribePart(name_)},
                       {"kind", std::string(FailureKindName(kind))},
                       {"message", std::string(status.message())},
                       {"exclude", exclude}});
  pb::PartEvent event;
  event.mutable_failed()->set_code(static_cast<int>(status.code()));
  event.mutable_failed()->set_message(std::string(status.message()));
  event.mutable_failed()->set_exclude(exclude);
  event.mutable_failed()->set_kind(static_cast<pb::FailureKind>(kind));
  // A failed attempt is a regular answer, so the call itself ends with OK.
  Finally(std::move(event), {telemetry::Outcome::kFailed, grpc::Status::OK}, is_answer);
}

void PartCall::Refuse(absl::Duration retry_after, const std::string& why, telemetry::Outcome outcome,
                      bool is_answer) {
  pb::PartEvent event;
  event.mutable_refused()->set_retry_after_seconds(absl::ToDoubleSeconds(retry_after));
  event.mutable_refused()->set_reason(why);
  Finally(std::move(event), {outcome, grpc::Status::OK}, is_answer);
}

void PartCall::Advance() {
  enum class Act { kNothing, kWrite, kWriteLast, kFinish } act = Act::kNothing;
  grpc::Status status;
  {
    MutexLock lock(mutex_);
    if (writing_ || finished_) return;
    if (cancelled_) {
      finished_ = true;
      act = Act::kFinish;
      status = grpc::Status::CANCELLED;
    } else if (answered_ && !events_.empty()) {
      written_ = std::move(events_.front());
      events_.pop_front();
      writing_ = true;
      act = Act::kWrite;
      if (events_.empty() && end_.has_value()) {
        // The last event and the status travel together, which saves a message and a wake-up.
        finished_ = true;
        act = Act::kWriteLast;
        status = end_->status;
      }
    } else if (answered_ && end_.has_value()) {
      finished_ = true;
      act = Act::kFinish;
      status = end_->status;
    }
  }
  // Only one thread gets here at a time: the flags set above keep all others out.
  if (act == Act::kWrite) StartWrite(&written_);
  if (act == Act::kWriteLast) StartWriteAndFinish(&written_, grpc::WriteOptions(), status);
  if (act == Act::kFinish) Finish(status);
}

void PartCall::OnWriteDone(bool ok) {
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) cancelled_ = true;
  }
  Advance();
}

void PartCall::OnCancel() {
  PartPool::Ticket ticket = 0;
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
    ticket = ticket_;
    if (!end_.has_value()) {
      end_ = {telemetry::Outcome::kCancelled, grpc::Status::CANCELLED};
      uses_.metrics.CountRequest(telemetry::Outcome::kCancelled);
    }
  }
  if (ticket != 0) uses_.pool.Cancel(ticket);
  Advance();
}

void PartCall::OnDone() { calls_.Remove(this); }

}  // namespace evenkeel::server
