// Transitions of a worker's record, and the search along the ring for the worker to ask next.
#include "client/worker_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/worker_ring.h"

namespace evenkeel::client {
namespace {

// How long the preferred worker's session may take to open before the next one is asked.
constexpr absl::Duration kOpeningPatience = absl::Milliseconds(300);

const char* StateName(Worker::State state) {
  switch (state) {
    case Worker::State::kIdle:
      return "not asked yet";
    case Worker::State::kOpening:
      return "opening a session";
    case Worker::State::kReady:
      return "ready";
    case Worker::State::kAway:
      return "away";
    case Worker::State::kRejected:
      return "rejected";
  }
  return "";
}

// 0: asked in its turn. Above 0: asked last, in ascending order.
int Doubts(const Worker& worker, WorkerStanding::Work work, const Dislikes& disliked, absl::Time now) {
  auto found = disliked.find(worker.endpoint);
  int doubts = found == disliked.end() ? 0 : found->second;
  switch (worker.standing.TrustIn(work, now)) {
    case WorkerStanding::Trust::kTrusted:
      return doubts;
    case WorkerStanding::Trust::kOnTrial:
      return doubts + (worker.standing.in_flight(work) > 0 ? worker.standing.stalls(work) : 0);
    case WorkerStanding::Trust::kGrey:
      return doubts + worker.standing.stalls(work);
  }
  return doubts;
}

// The least doubted workers, used if no other one is alive.
struct LastResort {
  Worker* ask = nullptr;
  Worker* open = nullptr;
  int ask_doubts = 0;
  int open_doubts = 0;

  void Consider(Worker& worker, int doubts, uint64_t step, bool alone, absl::Time now) {
    if (worker.CanTake(step, now)) {
      if (ask == nullptr || doubts < ask_doubts) ask = &worker, ask_doubts = doubts;
    } else if (worker.CanOpen(now, alone)) {
      if (open == nullptr || doubts < open_doubts) open = &worker, open_doubts = doubts;
    }
  }
};

}  // namespace

void Worker::BeginOpening(CallId call, absl::Time now) {
  state = State::kOpening;
  since = now;
  open_call = call;
}

void Worker::BeginSession(absl::Time now) {
  state = State::kReady;
  since = last_heard = last_used = now;
  in_flight = unanswered = 0;
  told_wait_seconds = 0;
  bytes_arrived = 0;
  refused_last = false;
}

void Worker::EndSession() {
  state = State::kIdle;
  in_flight = unanswered = 0;
  standing.EndAll();
  refused_last = false;
  busy_until = absl::InfinitePast();
}

void Worker::SendAway(Backoff pause, const std::string& reason, absl::Time now) {
  ++failures;
  state = State::kAway;
  since = now;
  until = now + pause.among_others;
  alone_until = now + pause.alone;
  trouble = reason;
}

void Worker::Reject(absl::Duration pause, const std::string& reason, absl::Time now) {
  state = State::kRejected;
  since = now;
  until = now + pause;
  trouble = reason;
}

void Worker::Ask(const Phase& phase, absl::Time now) {
  standing.Ask(phase);
  ++in_flight;
  ++unanswered;
  last_used = now;
  if (in_flight == 1) last_heard = now;
}

void Worker::Accept() {
  unanswered = std::max(0, unanswered - 1);
  refused_last = false;
}

void Worker::Refuse(uint64_t step, absl::Time busy, const std::string& reason, absl::Time now) {
  // A refusal while the worker is still busy may lower the step from which it is avoided, never raise it.
  busy_step = now < busy_until ? std::min(busy_step, step) : step;
  busy_until = std::max(busy_until, busy);
  refused_last = true;
  trouble = absl::StrCat("refused: ", reason);
}

void Worker::End(const Phase& phase, bool accepted) {
  in_flight = std::max(0, in_flight - 1);
  standing.End(phase);
  if (!accepted) unanswered = std::max(0, unanswered - 1);
}

void Worker::Finish(const Phase& phase, absl::Time asked, absl::Time now) {
  failures = 0;
  last_heard = now;
  standing.Finish(phase, asked, now);
}

std::string Worker::Describe() const {
  std::string text = absl::StrCat(endpoint, " (", StateName(state));
  if (!trouble.empty() && state != State::kIdle)
    absl::StrAppend(&text, state == State::kReady ? ", last: " : ": ", trouble);
  return text + ")";
}

std::vector<Worker> WorkerTable::SetListed(const std::vector<std::string>& sorted) {
  for (auto& [endpoint, worker] : workers_) {
    worker.listed = std::binary_search(sorted.begin(), sorted.end(), endpoint);
  }
  for (const std::string& endpoint : sorted) {
    Worker& worker = workers_[endpoint];
    worker.endpoint = endpoint;
    worker.on_own_node = own_node_.Has(endpoint);
  }
  return TakeFinished();
}

std::vector<Worker> WorkerTable::TakeFinished() {
  std::vector<Worker> finished;
  for (auto it = workers_.begin(); it != workers_.end();) {
    if (it->second.listed || it->second.in_flight > 0 || it->second.state == Worker::State::kOpening) {
      ++it;
      continue;
    }
    finished.push_back(std::move(it->second));
    it = workers_.erase(it);
  }
  return finished;
}

Choice WorkerTable::Choose(uint32_t rank, uint64_t step, uint32_t position, WorkerStanding::Work work,
                           const std::set<std::string>& excluded, const Dislikes& disliked, absl::Time now) {
  std::vector<Worker*> ring;
  for (auto& [endpoint, worker] : workers_) {
    if (worker.listed) ring.push_back(&worker);
  }
  // One pass over the ring: the first worker that can take the request wins; a session is opened with the
  // first one before it that has none. Doubted workers are collected on the way for the last resort.
  const bool alone = NobodyServes(work, now);
  Choice choice;
  LastResort last_resort;
  bool another_is_alive = false;
  std::vector<size_t> order = AskOrder(ring.size(), rank, step, position);
  std::stable_partition(order.begin(), order.end(), [&](size_t i) { return ring[i]->on_own_node; });
  for (size_t i : order) {
    Worker& worker = *ring[i];
    if (excluded.contains(worker.endpoint)) continue;
    if (int doubts = Doubts(worker, work, disliked, now); doubts > 0) {
      last_resort.Consider(worker, doubts, step, alone, now);
      continue;
    }
    bool preferred = choice.open == nullptr;
    another_is_alive |= worker.state == Worker::State::kReady;
    if (worker.CanOpen(now, alone)) {
      if (choice.open == nullptr) choice.open = &worker;
      // Waiting is worth it for a worker that was never tried, not for one that was lost.
      choice.wait |= preferred && worker.state == Worker::State::kIdle;
    } else if (worker.state == Worker::State::kOpening) {
      another_is_alive |= worker.failures == 0;
      choice.wait |= preferred && worker.failures == 0 && now - worker.since < kOpeningPatience;
    } else if (worker.CanTake(step, now)) {
      choice.ask = &worker;
      break;
    }
  }
  if (choice.ask == nullptr && choice.open == nullptr && !choice.wait && !another_is_alive) {
    choice.ask = last_resort.ask;
    choice.ask_last = last_resort.ask != nullptr;
    choice.open = last_resort.open;
  }
  if (choice.wait) choice.ask = nullptr;
  return choice;
}

bool WorkerTable::NobodyServes(WorkerStanding::Work work, absl::Time now) const {
  return std::ranges::none_of(workers_, [&](const auto& entry) {
    const Worker& worker = entry.second;
    return worker.listed && worker.state == Worker::State::kReady &&
           worker.standing.TrustIn(work, now) != WorkerStanding::Trust::kGrey;
  });
}

Worker* WorkerTable::Find(const std::string& endpoint) {
  auto found = workers_.find(endpoint);
  return found == workers_.end() ? nullptr : &found->second;
}

Worker* WorkerTable::FindByOpenCall(CallId call) {
  for (auto& [endpoint, worker] : workers_) {
    if (worker.state == Worker::State::kOpening && worker.open_call == call) return &worker;
  }
  return nullptr;
}

size_t WorkerTable::num_listed() const {
  return std::count_if(workers_.begin(), workers_.end(),
                       [](const auto& entry) { return entry.second.listed; });
}

size_t WorkerTable::num_grey(absl::Time now) const {
  return std::count_if(workers_.begin(), workers_.end(), [now](const auto& entry) {
    return entry.second.listed && entry.second.standing.IsGrey(now);
  });
}

std::string WorkerTable::Describe() const {
  if (workers_.empty()) return "no worker is known";
  std::string text = "workers: ";
  for (const auto& [endpoint, worker] : workers_) {
    absl::StrAppend(&text, &worker == &workers_.begin()->second ? "" : ", ", worker.Describe());
  }
  return text;
}

}  // namespace evenkeel::client
