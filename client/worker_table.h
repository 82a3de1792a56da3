// The consumer's record of each worker, and the choice of the next one to ask. Bookkeeping only: no calls are
// made here.
//
// Thread safety: none; the fetch loop owns it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/control_plane.h"
#include "client/own_node.h"
#include "client/retry_policy.h"
#include "client/worker_standing.h"

namespace evenkeel::client {

struct Worker {
  enum class State {
    kIdle,      // no session
    kOpening,   // OpenSession is in flight
    kReady,     // has a session
    kAway,      // lost or unreachable; retried after `until`
    kRejected,  // serves another stream, layout or version; retried after `until`, as it may be replaced
  };

  std::string endpoint;
  State state = State::kIdle;
  bool on_own_node = false;
  bool listed = true;  // false: finishes its requests and gets no new ones
  absl::Time since;    // of the state
  absl::Time until = absl::InfinitePast();
  absl::Time alone_until = absl::InfinitePast();  // instead of `until` if no other worker can be asked
  int failures = 0;                               // consecutive
  std::string trouble;                            // the latest one, for messages
  CallId open_call = 0;
  transport::Secret secret = {};
  bool memory_refused = false;  // its sealed memory could not be handed over to this process
  uint64_t session = 0;
  absl::Time last_heard;  // any event of any of its calls
  absl::Time last_used;
  absl::Time bytes_moved = absl::InfinitePast();  // when payload last arrived from it
  uint64_t bytes_arrived = 0;                     // of its session, at the last look
  int in_flight = 0;                              // parts requested from it
  WorkerStanding standing;                        // outlives sessions
  double told_wait_seconds = 0;                   // the consumer's wait, as reported to this session

  // Refusals: until `busy_until` the worker gets no requests for steps from `busy_step` on. After that it
  // gets one at a time until it accepts one, so that a full worker does not receive everything again and
  // again.
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
  // All its attempts must have ended.
  void EndSession();
  // The worker is lost, unreachable or restarted: not asked before `pause.among_others` (or `pause.alone`)
  // has passed.
  void SendAway(Backoff pause, const std::string& reason, absl::Time now);
  void Reject(absl::Duration pause, const std::string& reason, absl::Time now);

  // ---- Transitions of its requests for parts

  void Ask(const Phase& phase, absl::Time now);
  // The first answer to a request that is not a refusal.
  void Accept();
  // The worker gets no requests for steps from `step` on before `busy`.
  void Refuse(uint64_t step, absl::Time busy, const std::string& reason, absl::Time now);
  // `accepted`: Accept was called for this request.
  void End(const Phase& phase, bool accepted);
  // The part requested at `asked` is complete. Called after End.
  void Finish(const Phase& phase, absl::Time asked, absl::Time now);

  // "10.0.0.1:7000 (away: connection refused)".
  std::string Describe() const;
};

// Failures and stalls of one request, by the worker's endpoint.
using Dislikes = std::map<std::string, int>;

// The result of WorkerTable::Choose.
struct Choice {
  Worker* ask = nullptr;   // ready: ask it
  bool ask_last = false;   // `ask` is disliked, grey or on trial, and is asked because no other worker can be
  Worker* open = nullptr;  // open a session with this one; may be set in addition to `ask`
  bool wait = false;       // the preferred worker is about to be ready
};

class WorkerTable {
 public:
  WorkerTable() = default;
  // Workers on `own_node` are asked first.
  explicit WorkerTable(OwnNode own_node) : own_node_(std::move(own_node)) {}

  // Keeps the records of workers that stay listed; removes and returns unlisted ones without requests.
  std::vector<Worker> SetListed(const std::vector<std::string>& sorted);
  std::vector<Worker> TakeFinished();

  // The first worker of the ring (AskOrder), those on the own node before the others, that can take the request.
  // `excluded` are never asked. Asked only if no other worker is alive: those in `disliked`, grey ones, and those on trial
  // that have a request already; among these, the one with the fewest dislikes and stalls.
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
  // True if no listed worker is ready for this work, or only grey ones are.
  bool NobodyServes(WorkerStanding::Work work, absl::Time now) const;

  OwnNode own_node_;
  std::map<std::string, Worker> workers_;  // sorted: the ring's order
};

}  // namespace evenkeel::client
