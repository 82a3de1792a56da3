// One part on its way: the copies asked for, what became of them, and when to give up. Each event of a copy
// is one function here; no calls are made.
//
// Thread safety: none; the fetch loop owns it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/control_plane.h"
#include "client/inbox.h"
#include "client/receive_memory.h"
#include "client/retry_policy.h"
#include "client/worker_table.h"

namespace evenkeel::client {

// The stage that a worker reports while it sends a part. Its counter only counts seconds; the bytes that
// arrive are the progress.
inline constexpr std::string_view kSendingStage = "sending";

// One copy of a request.
struct Attempt {
  enum class State { kAsked, kAccepted, kSent };

  std::string endpoint;
  uint64_t session = 0;
  uint64_t request = 0;
  CallId call = 0;
  std::shared_ptr<ReceiveBuffer> buffer;  // the transport's, too, until it is done (transport/transport.h)
  State state = State::kAsked;
  uint32_t queue = 0;
  std::string stage;
  uint64_t done = 0, total = 0;
  absl::Time asked;
  absl::Time advanced;    // when the worker last got further with it
  bool moved = false;     // it has, since it was accepted
  bool stalled = false;   // it did not for too long, and its worker was marked for it
  bool on_trial = false;  // its worker was not trusted when it was asked
  bool doubted = false;   // another copy was asked for

  bool accepted() const { return state != State::kAsked; }
  bool on_its_way() const { return state == State::kSent || stage == kSendingStage; }
};

// An attempt that the worker itself ended with an error, or whose bytes made no sense.
struct FailedAttempt {
  std::string endpoint;
  std::string message;
  std::string exclude;  // a line for the job's `exclude` list; may be empty
};

// What the machine of one worker could not do, and for how long: storage, open files, memory, a helper
// process. It counts towards no verdict on the data, and is tried again.
struct MachineTrouble {
  std::string message;  // the last one
  size_t times = 0;
  absl::Time since;  // the first one

  // Counts one more; returns how long to leave the worker alone (AfterTrouble).
  absl::Duration Add(const std::string& what, absl::Time now);
  // "a.tar: No such file or directory (12 times in 3.2s)".
  std::string Describe(absl::Time now) const;
};
// By worker.
using MachineTroubles = std::map<std::string, MachineTrouble>;

// "; failed on a:1: ...; failed on b:1: ...", of the first few workers; empty without troubles.
std::string DescribeTroubles(const MachineTroubles& troubles, absl::Time now);

struct PartFetch {
  PartName name;
  uint64_t bytes = 0;
  uint32_t position = 0;  // within its step
  std::vector<Attempt> attempts;
  std::optional<ReceiveBuffer> spare;  // granted, and no copy is asked for now
  uint32_t copies_accepted = 0;
  size_t refusals = 0;
  size_t damaged = 0;
  std::vector<FailedAttempt> failed;
  Dislikes stalled;  // attempts that stood still, by worker
  MachineTroubles troubles;
  std::map<std::string, absl::Time> avoid;  // worker -> not before
  absl::Time not_before = absl::InfinitePast();

  bool complete = false;
  ReceiveBuffer buffer;  // complete: the bytes
  PartView view;

  // ---- Transitions; `index` is a copy's place in `attempts`

  // The worker took the request: it said so, or reported progress. False if it had before.
  bool Accept(size_t index, absl::Time now);
  // A report of progress. True if the counter grew within one stage; the first report of a stage only shows
  // that the worker took notice.
  bool Advance(size_t index, const PartEvent& event, absl::Time now);
  // The worker sent all bytes; they are on the way.
  void MarkSent(size_t index, absl::Time now);
  // The copy does not move for too long. False if it was counted before.
  bool MarkStalled(size_t index);
  // A refused copy, or one that the worker's machine lost: no work was done, so the next one is no duplicate.
  void WithdrawAcceptance(size_t index);
  // Takes the copy off the list. A copy that was doubted because of it stands alone again.
  Attempt Remove(size_t index);
  // The memory of a removed copy is kept for the next one. Not while the transport still holds it: then
  // false, and the buffer stays with the attempt.
  bool KeepMemory(Attempt& attempt);
  // After Remove: the attempt failed, or its bytes made no sense. `pause`: before anyone is asked again.
  void AddFailure(FailedAttempt failure, absl::Duration pause, absl::Time now);
  // After Remove: the bytes had another hash. `pause`: before this worker is asked again.
  void AddDamage(const std::string& endpoint, absl::Duration pause, absl::Time now);
  // The bytes of this copy are all here and make sense. The other copies are left to the caller to end.
  void Complete(size_t index, PartView bytes);

  // ---- Decisions

  // Whether a copy makes no progress (StaleAt); `worker` sends it and may be null.
  bool IsStale(const Attempt& attempt, const Worker* worker, absl::Duration progress_timeout,
               absl::Time now) const;
  // Workers that must not be asked now: they have a copy, or are avoided.
  std::set<std::string> Excluded(absl::Time now) const;
  // Workers whose attempts failed.
  std::set<std::string> FailedOn() const;
  // Workers whose attempts failed or stood still.
  Dislikes Disliked() const;
  // DataLoss after failed attempts on three distinct workers (on fewer where fewer are known); OK before.
  absl::Status Verdict(size_t num_workers) const;
  // "step 3 llm rank 0 ...: asked a:7000 (accepted, queue 2, nothing new for 4.1s)".
  std::string Describe(absl::Time now) const;
};

// When a copy counts as making no progress: `progress_timeout` after it last got further. Once its bytes are
// on the way, bytes that arrive from its worker (last at `bytes_moved`) count as progress, and the first ones
// have additionally what the part takes at 4 MiB/s, since the worker may have others to serve.
absl::Time StaleAt(const Attempt& attempt, uint64_t bytes, absl::Time bytes_moved,
                   absl::Duration progress_timeout);

}  // namespace evenkeel::client
