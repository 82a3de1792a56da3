// The fetcher's tick: extends the window of steps, asks for descriptions, grants memory and sends requests.
#include "client/fetcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace evenkeel::client {
namespace {

constexpr absl::Duration kPartDeadline =
    absl::Hours(1);                       // of the gRPC call; progress_timeout acts long before
constexpr double kReportWaitSeconds = 1;  // unreported wait that is worth a call of its own
constexpr absl::string_view kCheckTheMachines =
    "; the data is not at fault: check on the workers above that the shards and the index can be read, and "
    "that "
    "limits of open files, memory and decoder processes suffice; or raise the step timeout";

uint64_t SaturatingAdd(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

}  // namespace

Fetcher::Fetcher(const ConsumerOptions& options, Pinned pinned, Uses uses)
    : options_(options),
      end_step_(SaturatingAdd(options.first_step, options.num_steps)),
      pinned_(std::move(pinned)),
      uses_(std::move(uses)),
      head_(options.first_step),
      workers_(OwnNode::OfThisProcess()) {}

void Fetcher::Tick(absl::Time now) {
  LookForBytes(now);
  ReplaceStale(now);
  PassOverTrials(now);
  ExtendWindow();
  bool room =
      true;  // memory is granted in step order: later steps must not overtake one that waits for memory
  for (auto& [number, step] : steps_) {
    if (!step.error.ok()) continue;
    if (!step.description.has_value()) {
      AskForDescription(step, now);
      room = false;
      continue;
    }
    room = room && (step.granted || step.GrantMemory(*uses_.memory, number == head_));
    AskForParts(step, now);
  }
  ReportWait(now);
  CloseIdleSessions(now);
}

// The window always contains the head step, even with prefetch_steps = 0.
void Fetcher::ExtendWindow() {
  uint64_t end = std::min(end_step_, SaturatingAdd(head_, std::max(1u, options_.prefetch_steps)));
  for (uint64_t step = head_; step < end; ++step) {
    steps_.try_emplace(step, step, options_.progress_timeout);
  }
}

void Fetcher::AskForDescription(StepFetch& step, absl::Time now) {
  DescriptionFetch& asking = step.asking;
  if (!asking.MayAsk(now)) return;
  const Dislikes avoided = asking.Avoided(now);
  // A worker that is busy with parts can still describe a step, since planning runs on another thread. If the
  // choice finds no worker, the loop below takes any that is ready and not grey.
  Choice choice = workers_.Choose(uses_.asks_as, step.step, 0, kDescriptions, {}, avoided, now);
  if (choice.open != nullptr) OpenSession(*choice.open, now);
  Worker* worker = choice.ask;
  if (worker == nullptr && !choice.wait) {
    for (auto& [endpoint, candidate] : workers_.all()) {
      bool able = candidate.state == Worker::State::kReady && candidate.listed &&
                  !avoided.contains(endpoint) &&
                  candidate.standing.TrustIn(kDescriptions, now) != WorkerStanding::Trust::kGrey;
      if (able && worker == nullptr) worker = &candidate;
    }
  }
  if (worker == nullptr) return;
  worker->last_used = now;
  // An untrusted worker gets less time before the next one is asked.
  bool trusted = worker->standing.TrustIn(kDescriptions, now) == WorkerStanding::Trust::kTrusted;
  absl::Duration patience =
      trusted || choice.ask_last
          ? asking.patience()
          : TrialPatience(kFirstTrialPatience, worker->standing.stalls(kDescriptions), asking.patience());
  worker->standing.Ask(kDescriptions);
  asking.Ask(uses_.control->DescribeStep(worker->endpoint, worker->session, step.step, options_.rank,
                                         {options_.all_loads, options_.whole}, patience),
             worker->endpoint, now);
}

void Fetcher::AskForParts(StepFetch& step, absl::Time now) {
  for (PartFetch& part : step.parts) {
    if (part.complete || !part.attempts.empty() || !part.spare.has_value() || now < part.not_before) continue;
    if (num_attempts_ >= MaxInFlight(/*is_head=*/step.step == head_)) return;
    AskForCopy(step, part, now);
  }
}

bool Fetcher::AskForCopy(StepFetch& step, PartFetch& part, absl::Time now) {
  Choice choice = ChooseFor(step, part, /*carefully=*/!part.stalled.empty(), now);
  if (choice.open != nullptr) OpenSession(*choice.open, now);
  if (choice.ask == nullptr) return false;
  SendRequest(part, *choice.ask, now);
  return true;
}

Choice Fetcher::ChooseFor(const StepFetch& step, const PartFetch& part, bool carefully, absl::Time now) {
  Dislikes disliked = part.Disliked();
  if (carefully) {
    for (const std::string& endpoint : DoubtfulWorkers(part.name.phase, now)) ++disliked[endpoint];
  }
  const uint32_t asks_as =
      part.name.rank < uses_.llm_ranks.size() ? uses_.llm_ranks[part.name.rank] : uses_.asks_as;
  return workers_.Choose(asks_as, step.step, part.position, part.name.phase, part.Excluded(now), disliked,
                         now);
}

void Fetcher::SendRequest(PartFetch& part, Worker& worker, absl::Time now) {
  Attempt attempt;
  attempt.endpoint = worker.endpoint;
  attempt.session = worker.session;
  attempt.request = ++last_request_;
  attempt.buffer = std::make_shared<ReceiveBuffer>(*std::exchange(part.spare, std::nullopt));
  if (uses_.sink->replaces_pages(worker.session)) attempt.buffer->MarkReplaced();
  attempt.asked = attempt.advanced = now;
  attempt.on_trial = worker.standing.TrustIn(part.name.phase, now) != WorkerStanding::Trust::kTrusted;
  worker.Ask(part.name.phase, now);
  ++stats_.requests;
  ++num_attempts_;
  Inbox* inbox = uses_.inbox;
  uint64_t request = attempt.request;
  // The receive is posted before the request is sent: the bytes may arrive before the call's first event.
  uses_.sink->Expect(worker.session, request, attempt.buffer->bytes(),
                     [inbox, request, buffer = attempt.buffer](absl::Status status) {
                       inbox->Post({0, Received{request, std::move(status)}});
                     });
  attempt.call = uses_.control->RequestPart(
      worker.endpoint,
      {worker.session, request, part.name, part.copies_accepted, WaitFor(worker, now), part.role},
      std::max(kPartDeadline, 2 * options_.step_timeout));
  part.attempts.push_back(std::move(attempt));
}

double Fetcher::WaitFor(Worker& worker, absl::Time now) {
  return worker.told_wait_seconds += wait_.Report(now);
}

void Fetcher::ReportWait(absl::Time now) {
  if (wait_.Unreported(now) < kReportWaitSeconds) return;
  Worker* latest = nullptr;  // the last one heard is the most likely to be alive
  for (auto& [endpoint, worker] : workers_.all()) {
    if (worker.state != Worker::State::kReady) continue;
    if (latest == nullptr || worker.last_heard > latest->last_heard) latest = &worker;
  }
  if (latest == nullptr) return;
  uses_.control->ReportWait(latest->endpoint, latest->session, WaitFor(*latest, now),
                            options_.progress_timeout);
}

bool Fetcher::HeadIsDecided() const {
  if (head_ >= end_step_) return true;
  auto found = steps_.find(head_);
  return found != steps_.end() && found->second.is_decided();
}

absl::StatusOr<std::shared_ptr<const StepData>> Fetcher::TakeHead(absl::Time now) {
  if (head_ >= end_step_) {
    return absl::OutOfRangeError(absl::StrCat("step ", head_, " is past the last one asked for"));
  }
  auto found = steps_.find(head_);
  if (found != steps_.end() && !found->second.error.ok()) return found->second.error;
  if (found != steps_.end() && found->second.ready()) return Deliver(found->second);
  return absl::DeadlineExceededError(WhatIsAwaited(now));
}

std::shared_ptr<const StepData> Fetcher::Deliver(StepFetch& step) {
  for (const PartFetch& part : step.parts) stats_.bytes += part.bytes;
  stats_.parts += step.parts.size();
  ++stats_.steps;
  std::shared_ptr<const StepData> out = step.Deliver();
  steps_.erase(head_++);
  uses_.inbox->Post({0, Woken()});  // the window moved: there is a new step to ask for
  return out;
}

// The text of the step timeout: what is missing, what each worker does, and what to check.
std::string Fetcher::WhatIsAwaited(absl::Time now) const {
  std::string text =
      absl::StrCat("step ", head_, " did not arrive within ", absl::FormatDuration(options_.step_timeout));
  auto found = steps_.find(head_);
  absl::StrAppend(
      &text, found == steps_.end() ? "; no worker has described it" : found->second.DescribeMissing(now));
  absl::StrAppend(&text, "; ", workers_.Describe());
  if (found != steps_.end() && found->second.HasTroubles()) absl::StrAppend(&text, kCheckTheMachines);
  if (!endpoints_error_.ok()) absl::StrAppend(&text, "; ", endpoints_error_.message());
  return text;
}

void Fetcher::DropSteps() {
  for (auto& [number, step] : steps_) {
    if (step.asking.call() != 0) {
      uses_.control->Cancel(step.asking.call());
      if (Worker* worker = workers_.Find(step.asking.endpoint()); worker != nullptr)
        worker->standing.End(kDescriptions);
    }
    for (PartFetch& part : step.parts) {
      while (!part.attempts.empty()) EndAttempt(part, part.attempts.size() - 1);
    }
  }
  steps_.clear();
}

void Fetcher::Seek(uint64_t step) {
  DropSteps();
  head_ = step;
}

void Fetcher::Close() {
  DropSteps();
  for (auto& [endpoint, worker] : workers_.all()) EndSession(worker);
}

ConsumerStats Fetcher::stats(absl::Time now) const {
  ConsumerStats stats = stats_;
  const transport::Info used = uses_.sink->used();
  stats.transport = absl::StrCat(used.name, " ", used.detail);
  stats.wait_seconds = wait_.Seconds(now);
  stats.grey_workers = workers_.num_grey(now);
  return stats;
}

}  // namespace evenkeel::client
