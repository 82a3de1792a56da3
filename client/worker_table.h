// What the consumer knows of each worker, and which one to ask next. Bookkeeping only: no calls are made
// here.
//
// Thread safety: none; the fetch loop owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/control_plane.h"
#include "client/retry_policy.h"
#include "client/worker_standing.h"

namespace evenkeel::client {

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
  absl::Time alone_until = absl::InfinitePast();  // instead of `until` where no other worker can be asked
  int failures = 0;                               // in a row
  std::string trouble;                            // the last one, for messages
  CallId open_call = 0;
  transport::Secret secret = {};
  uint64_t session = 0;
  absl::Time last_heard;  // any event of any of its calls
  absl::Time last_used;
  absl::Time bytes_moved = absl::InfinitePast();  // when payload last arrived from it
  uint64_t bytes_arrived = 0;                     // of its session, when last looked at
  int in_flight = 0;                              // parts asked of it
  WorkerStanding standing;                        // outlives sessions
  double told_wait_seconds = 0;                   // of the consumer's waiting, what this session was told

  // Refusals: until `busy_until` steps from `busy_step` on are not asked of it, and then one at a time until
  // one is accepted, so that a full worker is not asked for everything again and again.
  absl::Time busy_until = absl::InfinitePast();
  uint64_t busy_step = 0;
  bool refused_last = false;
  int unanswered = 0;

  // `alone`: no other worker can be asked.
  bool CanOpen(absl::Time now, bool alone) const {
    if (!listed) return false;
    if (state == State::kAway) return now >= (alone ? std::min(alone_until, until) : until);
    return state == State::kIdle || (state == State::kRejected && now >= until);
  }
  bool CanTake(uint64_t step, absl::Time now) const {
    if (state != State::kReady || !listed) return false;
    if (now < busy_until && step >= busy_step) return false;
    return !refused_last || unanswered == 0 || step < busy_step;
  }

  // ---- Transitions of the session

  void BeginOpening(CallId call, absl::Time now);
  void BeginSession(absl::Time now);
  // Its attempts have ended before.
  void EndSession();
  // Lost, unreachable or restarted: not asked before `pause.among_others` (or `alone`) has passed.
  void SendAway(Backoff pause, const std::string& reason, absl::Time now);
  void Reject(absl::Duration pause, const std::string& reason, absl::Time now);

  // ---- Transitions of its requests for parts

  void Ask(const Phase& phase, absl::Time now);
  // The first answer to a request, and not a refusal.
  void Accept();
  // Steps from `step` on are not asked of it before `busy`.
  void Refuse(uint64_t step, absl::Time busy, const std::string& reason, absl::Time now);
  // `accepted`: Accept came before.
  void End(const Phase& phase, bool accepted);
  // A part of a request made at `asked` is complete. Called after End.
  void Finish(const Phase& phase, absl::Time asked, absl::Time now);

  // "10.0.0.1:7000 (away: connection refused)".
  std::string Describe() const;
};

// How often a worker disappointed with one request, by endpoint.
using Dislikes = std::map<std::string, int>;

// The answer to "whom to ask".
struct Choice {
  Worker* ask = nullptr;   // ready: ask it
  bool ask_last = false;   // `ask` is disliked, grey or has its trial: asked because nobody else can be
  Worker* open = nullptr;  // first open a session with this one; may be set beside `ask`
  bool wait = false;       // the preferred worker is about to be ready
};

class WorkerTable {
 public:
  // Keeps what is known of workers that stay listed; forgotten ones without work are returned and removed.
  std::vector<Worker> SetListed(const std::vector<std::string>& sorted);
  std::vector<Worker> TakeFinished();

  // In the order of the ring. `excluded` are not asked at all. Asked last, and only where no other worker is
  // alive: those in `disliked`, grey ones, and those on trial that have a request already; of these the one
  // with the fewest dislikes and stalls.
  Choice Choose(uint32_t rank, uint64_t step, uint32_t position, WorkerStanding::Work work,
                const std::set<std::string>& excluded, const Dislikes& disliked, absl::Time now);

  Worker* Find(const std::string& endpoint);
  Worker* FindByOpenCall(CallId call);
  size_t num_listed() const;
  size_t num_grey(absl::Time now) const;
  std::map<std::string, Worker>& all() { return workers_; }
  // One clause a worker, for messages.
  std::string Describe() const;

 private:
  // No listed worker is ready for this work but grey ones.
  bool NobodyServes(WorkerStanding::Work work, absl::Time now) const;

  std::map<std::string, Worker> workers_;  // sorted: the ring's order
};

}  // namespace evenkeel::client
