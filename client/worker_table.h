// What the consumer knows of each worker, and which one to ask next. Bookkeeping only: no calls are made
// here.
//
// Thread safety: none; the fetch loop owns it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/control_plane.h"

namespace evenkeel {

struct Worker {
  enum class State {
    kIdle,      // no session
    kOpening,   // OpenSession is on its way
    kReady,     // may be asked
    kAway,      // lost or unreachable; tried again after `until`
    kRejected,  // of another stream, layout or version; tried again after `until`, it may have been replaced
  };

  std::string endpoint;
  State state = State::kIdle;
  bool listed = true;  // false: finishes what it started, is asked for nothing new
  absl::Time since;    // of the state
  absl::Time until = absl::InfinitePast();
  int failures = 0;     // in a row
  std::string trouble;  // the last one, for messages
  CallId open_call = 0;
  transport::Secret secret = {};
  uint64_t session = 0;
  absl::Time last_heard;  // any event of any of its calls
  absl::Time last_used;
  int in_flight = 0;             // parts asked of it
  double told_wait_seconds = 0;  // of the consumer's waiting, what this session was told

  // Refusals: until `busy_until` steps from `busy_step` on are not asked of it, and then one at a time until
  // one is accepted, so that a full worker is not asked for everything again and again.
  absl::Time busy_until = absl::InfinitePast();
  uint64_t busy_step = 0;
  bool refused_last = false;
  int unanswered = 0;

  bool CanOpen(absl::Time now) const {
    return listed &&
           (state == State::kIdle || ((state == State::kAway || state == State::kRejected) && now >= until));
  }
  bool CanTake(uint64_t step, absl::Time now) const {
    if (state != State::kReady || !listed) return false;
    if (now < busy_until && step >= busy_step) return false;
    return !refused_last || unanswered == 0 || step < busy_step;
  }
  // "10.0.0.1:7000 (away: connection refused)".
  std::string Describe() const;
};

// The answer to "whom to ask".
struct Choice {
  Worker* ask = nullptr;   // ready: ask it
  Worker* open = nullptr;  // first open a session with this one; may be set beside `ask`
  bool wait = false;       // the preferred worker is about to be ready
};

class WorkerTable {
 public:
  // Keeps what is known of workers that stay listed; forgotten ones without work are returned and removed.
  std::vector<Worker> SetListed(const std::vector<std::string>& sorted);
  std::vector<Worker> TakeFinished();

  // In the order of the ring; `excluded` are not asked at all, `disliked` only where nobody else can be.
  Choice Choose(uint32_t rank, uint64_t step, uint32_t position, const std::set<std::string>& excluded,
                const std::set<std::string>& disliked, absl::Time now);

  Worker* Find(const std::string& endpoint);
  Worker* FindByOpenCall(CallId call);
  size_t num_listed() const;
  std::map<std::string, Worker>& all() { return workers_; }
  // One clause a worker, for messages.
  std::string Describe() const;

 private:
  std::map<std::string, Worker> workers_;  // sorted: the ring's order
};

}  // namespace evenkeel
