// Requests that do not move, and the workers that stand still.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/fetcher.h"

namespace evenkeel::client {

// Bytes that arrive are a worker's progress, whichever of its parts they belong to: they share its link.
void Fetcher::LookForBytes(absl::Time now) {
  for (auto& [endpoint, worker] : workers_.all()) {
    if (worker.state != Worker::State::kReady || worker.in_flight == 0) continue;
    uint64_t arrived = uses_.sink->bytes_arrived(worker.session);
    if (arrived == worker.bytes_arrived) continue;
    worker.bytes_arrived = arrived;
    worker.bytes_moved = worker.last_heard = now;
  }
}

// Those on trial, and those with a request that has not moved for half of what makes it stale.
std::set<std::string> Fetcher::DoubtfulWorkers(Work work, absl::Time now) {
  std::set<std::string> doubtful;
  for (const auto& [endpoint, worker] : workers_.all()) {
    if (worker.standing.TrustIn(work, now) != WorkerStanding::Trust::kTrusted) doubtful.insert(endpoint);
  }
  for (const auto& [number, step] : steps_) {
    for (const PartFetch& part : step.parts) {
      for (const Attempt& attempt : part.attempts) {
        const Worker* worker = workers_.Find(attempt.endpoint);
        absl::Time moved = attempt.advanced;
        if (worker != nullptr && attempt.on_its_way()) moved = std::max(moved, worker->bytes_moved);
        if (now - moved >= options_.progress_timeout / 2) doubtful.insert(attempt.endpoint);
      }
    }
  }
  return doubtful;
}

void Fetcher::ReplaceStale(absl::Time now) {
  for (auto& [number, step] : steps_) {
    for (PartFetch& part : step.parts) {
      for (size_t i = 0; i < part.attempts.size(); ++i) {
        const Attempt& attempt = part.attempts[i];
        const Worker* worker = workers_.Find(attempt.endpoint);
        if (!part.IsStale(attempt, worker, options_.progress_timeout, now)) continue;
        if (ReplaceStaleAttempt(step, part, i, now)) break;  // the list has changed
      }
    }
  }
}

// False where nothing changed: a copy that moves was asked for already.
bool Fetcher::ReplaceStaleAttempt(StepFetch& step, PartFetch& part, size_t index, absl::Time now) {
  Attempt& attempt = part.attempts[index];
  Worker* worker = workers_.Find(attempt.endpoint);
  if (worker == nullptr) {
    EndAttempt(part, index);
    return true;
  }
  if (part.MarkStalled(index)) {
    MarkStall(*worker, part.name.phase, attempt.asked, attempt.advanced, now);
  }
  if (now - worker->last_heard >= options_.progress_timeout || attempt.on_its_way()) {
    // Nothing at all is heard from it, or its bytes do not get through: not only this part is stuck.
    LoseWorker(*worker, absl::StrCat("no progress for ", absl::FormatDuration(options_.progress_timeout)),
               now);
    return true;
  }
  // The worker is alive and this part does not move.
  if (part.attempts.size() < kMaxCopies) {
    ++stats_.replaced_workers;
    AskElsewhere(step, part, now);
    return true;
  }
  // One of two copies. Where the other does not move either, this one makes room for a third worker's.
  const Attempt& other = part.attempts[1 - index];
  if (!part.IsStale(other, workers_.Find(other.endpoint), options_.progress_timeout, now)) return false;
  EndAttempt(part, index);
  return true;
}

// Asks another worker for the part, whose only copy does not move: for a second copy, while duplicates are
// within their budget; beyond that the first is given up before another is asked for.
void Fetcher::AskElsewhere(StepFetch& step, PartFetch& part, absl::Time now) {
  const bool may_double = MayDuplicate(stats_.duplicate_requests, stats_.requests);
  if (may_double && !part.spare.has_value())
    part.spare = uses_.memory->TryTake(part.bytes, step.step == head_);
  if (may_double && part.spare.has_value() && AskForCopy(step, part, now)) {
    part.attempts.front().doubted = true;
    ++stats_.duplicate_requests;
    return;
  }
  EndAttempt(part, 0);
}

// The only copy is with a worker on trial, which has not moved it for longer than it is waited for: as long as
// parts take of late, and longer each time (TrialPatience). Half of `progress_timeout` is enough for two
// reports of progress.
bool Fetcher::WaitsForTrial(const PartFetch& part, absl::Time now) {
  if (part.attempts.size() != 1) return false;
  const Attempt& attempt = part.attempts.front();
  const Worker* worker = workers_.Find(attempt.endpoint);
  if (worker == nullptr || !attempt.on_trial || attempt.moved) return false;
  const absl::Duration patience =
      TrialPatience(part_time_[part.name.phase.number()], worker->standing.stalls(part.name.phase),
                    options_.progress_timeout / 2);
  return now - attempt.asked >= patience;
}

// A worker on trial is hardly waited for: where the head step lacks nothing but parts that such workers have
// not moved for long enough, trusted ones are asked.
void Fetcher::PassOverTrials(absl::Time now) {
  auto head = steps_.find(head_);
  if (head == steps_.end() || !head->second.description.has_value()) return;
  StepFetch& step = head->second;
  for (const PartFetch& part : step.parts) {
    if (!part.complete && !WaitsForTrial(part, now)) return;
  }
  for (PartFetch& part : step.parts) {
    if (part.complete) continue;
    Choice choice = ChooseFor(step, part, /*carefully=*/true, now);
    if (choice.ask == nullptr || choice.ask_last) continue;
    const Attempt& attempt = part.attempts.front();
    ++part.stalled[attempt.endpoint];
    if (Worker* worker = workers_.Find(attempt.endpoint); worker != nullptr) {
      worker->standing.PassOver(part.name.phase, attempt.asked, now, jitter_(options_.progress_timeout));
    }
    AskElsewhere(step, part, now);
  }
}

void Fetcher::MarkStall(Worker& worker, Work work, absl::Time asked, absl::Time still_since, absl::Time now) {
  bool was_grey = worker.standing.IsGrey(now);
  worker.standing.Stall(work, asked, still_since, now, jitter_(options_.progress_timeout));
  if (was_grey || !worker.standing.IsGrey(now)) return;
  uses_.log(absl::StrCat("worker ", worker.endpoint, " stands still; it is asked last until it moves again"));
}

}  // namespace evenkeel::client
