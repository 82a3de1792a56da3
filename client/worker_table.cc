#include "client/worker_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/worker_ring.h"

namespace evenkeel {
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

}  // namespace

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

Choice WorkerTable::Choose(uint32_t rank, uint64_t step, uint32_t position,
                           const std::set<std::string>& excluded, const std::set<std::string>& disliked,
                           absl::Time now) {
  std::vector<Worker*> ring;
  for (auto& [endpoint, worker] : workers_) {
    if (worker.listed) ring.push_back(&worker);
  }
  Choice choice;
  Worker* second_best = nullptr;
  bool another_is_alive = false;
  for (size_t i : AskOrder(ring.size(), rank, step, position)) {
    Worker& worker = *ring[i];
    if (excluded.contains(worker.endpoint)) continue;
    bool preferred = choice.open == nullptr && second_best == nullptr;
    another_is_alive |= worker.state == Worker::State::kReady && !disliked.contains(worker.endpoint);
    if (worker.CanOpen(now)) {
      if (choice.open == nullptr) choice.open = &worker;
      // A worker that was lost is no reason to wait; one that was never tried is.
      choice.wait |= preferred && worker.state == Worker::State::kIdle;
    } else if (worker.state == Worker::State::kOpening) {
      choice.wait |= preferred && worker.failures == 0 && now - worker.since < kOpeningPatience;
    } else if (worker.CanTake(step, now)) {
      if (!disliked.contains(worker.endpoint)) {
        choice.ask = &worker;
        break;
      }
      if (second_best == nullptr) second_best = &worker;
    }
  }
  if (choice.ask == nullptr && choice.open == nullptr && !choice.wait && !another_is_alive)
    choice.ask = second_best;
  if (choice.wait) choice.ask = nullptr;
  return choice;
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

std::string WorkerTable::Describe() const {
  if (workers_.empty()) return "no worker is known";
  std::string text = "workers: ";
  for (const auto& [endpoint, worker] : workers_) {
    absl::StrAppend(&text, &worker == &workers_.begin()->second ? "" : ", ", worker.Describe());
  }
  return text;
}

}  // namespace evenkeel
