// Finds requests without progress and replaces them, and demotes the workers that caused them
// (worker_standing.h).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/fetcher.h"

namespace evenkeel::client {

// Arriving bytes are a worker's progress for all of its parts, because the parts share its link.
void Fetcher::LookForBytes(absl::Time now) {
  for (auto& [endpoint, worker] : workers_.all()) {
    if (worker.state != Worker::State::kReady || worker.in_flight == 0) continue;
    uint64_t arrived = uses_.sink->bytes_arrived(worker.session);
    if (arrived == worker.bytes_arrived) continue;
    worker.bytes_arrived = arrived;
    worker.bytes_moved = worker.last_heard = now;
  }
}

// Workers that are not trusted, and workers with a request that has been still for half of progress_timeout.
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
        if (ReplaceStaleAttempt(step, part, i, now)) break;  // `attempts` has changed
      }
    }
  }
}

// Returns false if nothing changed because a second copy that makes progress exists already.
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
    // The worker is silent, or its bytes do not get through: all of its parts are stuck, not just this one.
    LoseWorker(*worker, absl::StrCat("no progress for ", absl::FormatDuration(options_.progress_timeout)),
               now);
    return true;
  }
  // The worker is alive, but this part makes no progress: another worker gets the request, too.
  if (part.attempts.size() < kMaxCopies) {
    ++stats_.replaced_workers;
    AskElsewhere(step, part, now);
    return true;
  }
  // Both copies exist. If the other one is stale as well, this one is cancelled to make room for a third
  // worker.
  const Attempt& other = part.attempts[1 - index];
  if (!part.IsStale(other, workers_.Find(other.endpoint), options_.progress_timeout, now)) return false;
  EndAttempt(part, index);
  return true;
}

// Requests the part from another worker, as a second copy while duplicates are within their budget
// (MayDuplicate). Over budget, the first copy is cancelled before another is requested.
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

// True if the only copy is with a worker on trial and has exceeded its patience: the mean time of a part
// lately, doubled with each stall (TrialPatience). At most half of progress_timeout, which is enough for two
// progress reports.
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

// Workers on trial must not delay the trainer: if the head step waits for nothing but parts that such workers
// hold beyond their patience, trusted workers get the requests, too.
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
  uses_.log(absl::StrCat("worker ", worker.endpoint,
                         " makes no progress; other workers are preferred until it does"));
}

}  // namespace evenkeel::client
