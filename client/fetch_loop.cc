#include "client/fetch_loop.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "core/steady_time.h"

namespace evenkeel {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);
constexpr size_t kMaxAttempts = 64;  // in flight at once, over all workers
constexpr absl::Duration kIdleSession = absl::Seconds(60);
constexpr absl::Duration kPartDeadline = absl::Hours(1);  // of the call; progress decides long before
constexpr size_t kAwaitedPartsNamed = 4;
constexpr double kReportWaitSeconds = 1;  // of waiting that no worker was told

// Owns its buffers; the base's views point into them.
struct ReceivedStep : StepData {
  std::vector<ReceiveBuffer> buffers;
};

uint64_t SaturatingAdd(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

}  // namespace

FetchLoop::FetchLoop(const ConsumerOptions& options, Pinned pinned, Uses uses)
    : options_(options),
      end_step_(SaturatingAdd(options.first_step, options.num_steps)),
      pinned_(std::move(pinned)),
      uses_(std::move(uses)),
      head_(options.first_step),
      random_(std::random_device{}()) {
  stats_.transport = absl::StrCat(uses_.sink->info().name, " ", uses_.sink->info().detail);
}

void FetchLoop::Run() {
  for (;;) {
    std::vector<Event> events = uses_.inbox->Take(kTick);
    MutexLock lock(mutex_);
    absl::Time now = SteadyNow();
    for (Event& event : events) Take(std::move(event), now);
    if (stop_) {
      DropSteps();
      for (auto& [endpoint, worker] : workers_.all()) EndSession(worker);
      stopped_ = true;
      delivered_.NotifyAll();
      return;
    }
    Tick(now);
  }
}

void FetchLoop::Stop() {
  MutexLock lock(mutex_);
  stop_ = true;
  uses_.inbox->Post({0, Woken()});
}

void FetchLoop::Tick(absl::Time now) {
  ReplaceStale(now);
  ExtendWindow();
  bool room = true;  // memory is granted in step order: where a step waits for it, later ones wait behind
  for (auto& [number, step] : steps_) {
    if (!step.error.ok()) continue;
    if (!step.description.has_value()) {
      AskForDescription(step, now);
      room = false;
      continue;
    }
    room = room && (step.granted || GrantMemory(step));
    AskForParts(step, now);
  }
  ReportWait(now);
  CloseIdleSessions(now);
  auto head = steps_.find(head_);
  if (head != steps_.end() && (head->second.ready() || !head->second.error.ok())) delivered_.NotifyAll();
}

void FetchLoop::ExtendWindow() {
  uint64_t end = std::min(end_step_, SaturatingAdd(head_, std::max(1u, options_.prefetch_steps)));
  for (uint64_t step = head_; step < end; ++step) {
    auto [it, added] = steps_.try_emplace(step);
    if (!added) continue;
    it->second.step = step;
    it->second.patience = options_.progress_timeout;
  }
}

void FetchLoop::AskForDescription(StepFetch& step, absl::Time now) {
  if (step.describe_call != 0 || now < step.describe_not_before) return;
  std::set<std::string> avoided;
  for (const auto& [endpoint, until] : step.describe_avoid) {
    if (now < until) avoided.insert(endpoint);
  }
  // A busy worker still describes: planning is not what it is busy with. So the step counts as the lowest.
  Choice choice = workers_.Choose(options_.rank, step.step, 0, {}, avoided, now);
  if (choice.open != nullptr) OpenSession(*choice.open, now);
  Worker* worker = choice.ask;
  if (worker == nullptr && !choice.wait) {
    for (auto& [endpoint, candidate] : workers_.all()) {
      bool able = candidate.state == Worker::State::kReady && candidate.listed && !avoided.contains(endpoint);
      if (able && worker == nullptr) worker = &candidate;
    }
  }
  if (worker == nullptr) return;
  step.describe_endpoint = worker->endpoint;
  worker->last_used = now;
  step.describe_call =
      uses_.control->DescribeStep(worker->endpoint, worker->session, step.step, options_.rank, step.patience);
}

// True where every part of the step has its memory.
bool FetchLoop::GrantMemory(StepFetch& step) {
  for (PartFetch& part : step.parts) {
    if (part.complete || part.spare.has_value() || !part.attempts.empty()) continue;
    part.spare = uses_.memory->TryTake(part.bytes, step.step == head_);
    if (!part.spare.has_value()) return false;
  }
  step.granted = true;
  return true;
}

void FetchLoop::AskForParts(StepFetch& step, absl::Time now) {
  for (PartFetch& part : step.parts) {
    if (part.complete || !part.attempts.empty() || !part.spare.has_value() || now < part.not_before) continue;
    // The last places are the head step's.
    if (num_attempts_ >= (step.step == head_ ? kMaxAttempts : kMaxAttempts - kMaxAttempts / 4)) return;
    AskForCopy(step, part, now);
  }
}

// Asks the next worker for the part, into its spare memory. False where none takes it now.
bool FetchLoop::AskForCopy(StepFetch& step, PartFetch& part, absl::Time now) {
  Choice choice =
      workers_.Choose(options_.rank, step.step, part.position, part.Excluded(now), part.Disliked(), now);
  if (choice.open != nullptr) OpenSession(*choice.open, now);
  if (choice.ask == nullptr) return false;
  SendRequest(step, part, *choice.ask, now);
  return true;
}

void FetchLoop::SendRequest(StepFetch& step, PartFetch& part, Worker& worker, absl::Time now) {
  Attempt attempt;
  attempt.endpoint = worker.endpoint;
  attempt.session = worker.session;
  attempt.request = ++last_request_;
  attempt.buffer = std::make_shared<ReceiveBuffer>(*std::exchange(part.spare, std::nullopt));
  attempt.advanced = now;
  ++worker.in_flight;
  ++worker.unanswered;
  worker.last_used = now;
  if (worker.in_flight == 1) worker.last_heard = now;
  ++stats_.requests;
  ++num_attempts_;
  Inbox* inbox = uses_.inbox;
  uint64_t request = attempt.request;
  uses_.sink->Expect(worker.session, request, attempt.buffer->bytes(),
                     [inbox, request, buffer = attempt.buffer](absl::Status status) {
                       inbox->Post({0, Received{request, std::move(status)}});
                     });
  attempt.call = uses_.control->RequestPart(
      worker.endpoint, {worker.session, request, part.name, part.copies_accepted, TellWait(worker, now)},
      std::max(kPartDeadline, 2 * options_.step_timeout));
  part.attempts.push_back(std::move(attempt));
  (void)step;
}

void FetchLoop::ReplaceStale(absl::Time now) {
  for (auto& [number, step] : steps_) {
    for (PartFetch& part : step.parts) {
      for (size_t i = 0; i < part.attempts.size(); ++i) {
        const Attempt& attempt = part.attempts[i];
        if (attempt.doubted || now < StaleAt(attempt, part.bytes, options_.progress_timeout)) continue;
        ReplaceStaleAttempt(step, part, i, now);
        break;  // the list has changed
      }
    }
  }
}

void FetchLoop::ReplaceStaleAttempt(StepFetch& step, PartFetch& part, size_t index, absl::Time now) {
  Attempt& attempt = part.attempts[index];
  Worker* worker = workers_.Find(attempt.endpoint);
  if (worker == nullptr) return EndAttempt(part, index);
  if (now - worker->last_heard >= options_.progress_timeout || attempt.state == Attempt::State::kSent) {
    // Nothing at all is heard from it, or its bytes do not get through: not only this part is stuck.
    return LoseWorker(*worker,
                      absl::StrCat("no progress for ", absl::FormatDuration(options_.progress_timeout)), now);
  }
  // The worker is alive and this part does not move. A second copy, while duplicates stay below 5 % of
  // requests; beyond that the first is given up before another is asked for.
  ++stats_.replaced_workers;
  bool may_double =
      part.attempts.size() < kMaxCopies && (stats_.duplicate_requests + 1) * 20 <= stats_.requests;
  if (may_double && !part.spare.has_value())
    part.spare = uses_.memory->TryTake(part.bytes, step.step == head_);
  if (may_double && part.spare.has_value() && AskForCopy(step, part, now)) {
    part.attempts[index].doubted = true;
    ++stats_.duplicate_requests;
    return;
  }
  part.avoid[attempt.endpoint] = now + Jittered(options_.progress_timeout);
  EndAttempt(part, index);
}

double FetchLoop::WaitSeconds(absl::Time now) const {
  return stats_.wait_seconds + std::max(0.0, absl::ToDoubleSeconds(now - std::min(now, wait_began_)));
}

double FetchLoop::TellWait(Worker& worker, absl::Time now) {
  const double fresh = std::max(0.0, WaitSeconds(now) - told_wait_seconds_);
  told_wait_seconds_ += fresh;
  return worker.told_wait_seconds += fresh;
}

void FetchLoop::ReportWait(absl::Time now) {
  if (WaitSeconds(now) - told_wait_seconds_ < kReportWaitSeconds) return;
  Worker* latest = nullptr;  // who was heard last is most likely to hear
  for (auto& [endpoint, worker] : workers_.all()) {
    if (worker.state != Worker::State::kReady) continue;
    if (latest == nullptr || worker.last_heard > latest->last_heard) latest = &worker;
  }
  if (latest == nullptr) return;
  uses_.control->ReportWait(latest->endpoint, latest->session, TellWait(*latest, now),
                            options_.progress_timeout);
}

void FetchLoop::CloseIdleSessions(absl::Time now) {
  for (auto& [endpoint, worker] : workers_.all()) {
    bool idle = worker.state == Worker::State::kReady && worker.in_flight == 0 &&
                now - worker.last_used > kIdleSession;
    if (!idle) continue;
    EndSession(worker);
    worker.state = Worker::State::kIdle;
  }
  Release(workers_.TakeFinished());
}

bool FetchLoop::HeadIsDecided() const {
  if (stop_ || head_ >= end_step_) return true;
  auto found = steps_.find(head_);
  return found != steps_.end() && (found->second.ready() || !found->second.error.ok());
}

bool FetchLoop::WaitForHead(absl::Time until) {
  absl::Time begin = SteadyNow();
  if (wait_deadline_ == absl::InfiniteFuture()) wait_deadline_ = begin + options_.step_timeout;
  wait_began_ = begin;
  while (!HeadIsDecided() && delivered_.WaitUntil(mutex_, std::min(until, wait_deadline_))) continue;
  absl::Time now = SteadyNow();
  stats_.wait_seconds = WaitSeconds(now);
  wait_began_ = absl::InfiniteFuture();
  return HeadIsDecided() || now >= wait_deadline_;
}

bool FetchLoop::Wait(absl::Duration at_most) {
  MutexLock lock(mutex_);
  return WaitForHead(SteadyNow() + at_most);
}

absl::StatusOr<std::shared_ptr<const StepData>> FetchLoop::Next() {
  MutexLock lock(mutex_);
  WaitForHead(absl::InfiniteFuture());
  wait_deadline_ = absl::InfiniteFuture();
  if (stop_) return absl::CancelledError("the consumer was closed");
  if (head_ >= end_step_) {
    return absl::OutOfRangeError(absl::StrCat("step ", head_, " is past the last one asked for"));
  }
  auto found = steps_.find(head_);
  if (found != steps_.end() && !found->second.error.ok()) return found->second.error;
  if (found != steps_.end() && found->second.ready()) return Deliver(found->second);
  return absl::DeadlineExceededError(WhatIsAwaited(SteadyNow()));
}

std::shared_ptr<const StepData> FetchLoop::Deliver(StepFetch& step) {
  auto out = std::make_shared<ReceivedStep>();
  StepDescription& description = *step.description;
  out->step = step.step;
  out->num_microbatches = description.num_microbatches;
  out->loss_tokens = description.loss_tokens;
  out->num_samples = description.num_samples;
  out->routes = std::move(description.routes);
  out->loads = std::move(description.loads);
  for (PartFetch& part : step.parts) {
    stats_.bytes += part.bytes;
    ++stats_.parts;
    out->parts.push_back({part.name, std::move(part.view)});
    part.buffer.MarkDelivered();
    out->buffers.push_back(std::move(part.buffer));
  }
  ++stats_.steps;
  steps_.erase(head_++);
  uses_.inbox->Post({0, Woken()});  // the window moved
  return out;
}

std::string FetchLoop::WhatIsAwaited(absl::Time now) const {
  std::string text =
      absl::StrCat("step ", head_, " did not arrive within ", absl::FormatDuration(options_.step_timeout));
  auto found = steps_.find(head_);
  if (found == steps_.end() || !found->second.description.has_value()) {
    absl::StrAppend(&text, "; no worker has described it");
    if (found != steps_.end() && !found->second.describe_failed.empty()) {
      absl::StrAppend(&text, " (", found->second.describe_failed.back().message, ")");
    }
  } else {
    std::vector<std::string> awaited;
    for (const PartFetch& part : found->second.parts) {
      if (!part.complete) awaited.push_back(part.Describe(now));
    }
    size_t more = awaited.size() > kAwaitedPartsNamed ? awaited.size() - kAwaitedPartsNamed : 0;
    awaited.resize(awaited.size() - more);
    absl::StrAppend(&text, "; awaited: ", absl::StrJoin(awaited, "; "));
    if (more > 0) absl::StrAppend(&text, "; and ", more, " parts more");
  }
  absl::StrAppend(&text, "; ", workers_.Describe());
  if (!endpoints_error_.ok()) absl::StrAppend(&text, "; ", endpoints_error_.message());
  return text;
}

void FetchLoop::DropSteps() {
  for (auto& [number, step] : steps_) {
    if (step.describe_call != 0) uses_.control->Cancel(step.describe_call);
    for (PartFetch& part : step.parts) {
      while (!part.attempts.empty()) EndAttempt(part, part.attempts.size() - 1);
    }
  }
  steps_.clear();
}

void FetchLoop::Seek(uint64_t step) {
  MutexLock lock(mutex_);
  DropSteps();
  head_ = step;
  wait_deadline_ = absl::InfiniteFuture();
  uses_.inbox->Post({0, Woken()});
}

uint64_t FetchLoop::next_step() const {
  MutexLock lock(mutex_);
  return head_;
}

ConsumerStats FetchLoop::stats() const {
  MutexLock lock(mutex_);
  ConsumerStats stats = stats_;
  stats.wait_seconds = WaitSeconds(SteadyNow());
  return stats;
}

absl::Duration FetchLoop::Jittered(absl::Duration duration) {
  return duration * std::uniform_real_distribution<double>(1.0, 1.5)(random_);
}

}  // namespace evenkeel
