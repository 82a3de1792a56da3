// The state of one part until it is complete: the copies requested, their outcomes, and when to give up. Each
// event of a copy is one function here; no calls are made.
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

// The stage that a worker reports while it sends a part. Its counter counts seconds only; progress is
// measured by the bytes that arrive.
inline constexpr std::string_view kSendingStage = "sending";

// One copy of a request.
struct Attempt {
  enum class State { kAsked, kAccepted, kSent };

  std::string endpoint;
  uint64_t session = 0;
  uint64_t request = 0;
  CallId call = 0;
  std::shared_ptr<ReceiveBuffer>
      buffer;  // shared with the transport until it is done (transport/transport.h)
  State state = State::kAsked;
  uint32_t queue = 0;
  std::string stage;
  uint64_t done = 0, total = 0;
  absl::Time asked;
  absl::Time advanced;    // last progress
  bool moved = false;     // it made progress since it was accepted
  bool stalled = false;   // it exceeded progress_timeout, and its worker was marked for that
  bool on_trial = false;  // its worker was not trusted at the time of the request
  bool doubted = false;   // a second copy was requested because of it

  bool accepted() const { return state != State::kAsked; }
  bool on_its_way() const { return state == State::kSent || stage == kSendingStage; }
};

// An attempt that the worker ended with an error, or whose bytes were not a valid part.
struct FailedAttempt {
  std::string endpoint;
  std::string message;
  std::string exclude;  // a line for the job's `exclude` list; may be empty
};

// Failures of one worker's machine rather than of the data: storage, open files, memory, a helper process.
// They are retried and never count towards the verdict that the data is bad.
struct MachineTrouble {
  std::string message;  // of the latest failure
  size_t times = 0;
  absl::Time since;  // of the first failure

  // Counts one more failure; returns how long to leave the worker alone (AfterTrouble).
  absl::Duration Add(const std::string& what, absl::Time now);
  // "a.tar: No such file or directory (12 times in 3.2s)".
  std::string Describe(absl::Time now) const;
};
// By the worker's endpoint.
using MachineTroubles = std::map<std::string, MachineTrouble>;

// "; failed on a:1: ...; failed on b:1: ..." for the first few workers; empty without troubles.
std::string DescribeTroubles(const MachineTroubles& troubles, absl::Time now);

struct PartFetch {
  PartName name;
  uint64_t bytes = 0;
  PartRole role = PartRole::kWhole;
  uint32_t position = 0;  // within its step
  std::vector<Attempt> attempts;
  std::optional<ReceiveBuffer> spare;  // granted memory that no copy uses now
  uint32_t copies_accepted = 0;
  size_t refusals = 0;
  size_t damaged = 0;
  std::vector<FailedAttempt> failed;
  Dislikes stalled;  // attempts without progress, by worker
  MachineTroubles troubles;
  std::map<std::string, absl::Time> avoid;  // worker -> not asked before
  absl::Time not_before = absl::InfinitePast();

  bool complete = false;
  ReceiveBuffer buffer;  // complete: the bytes
  PartView view;

  // ---- Transitions; `index` is the copy's index in `attempts`

  // The worker took the request: it accepted it or reported progress. Returns false if that was known before.
  bool Accept(size_t index, absl::Time now);
  // A progress report. Returns true if the counter grew within one stage; the first report of a stage only
  // shows that the worker noticed the request.
  bool Advance(size_t index, const PartEvent& event, absl::Time now);
  // The worker sent all bytes; they are still arriving.
  void MarkSent(size_t index, absl::Time now);
  // The copy made no progress for too long. Returns false if it was counted before.
  bool MarkStalled(size_t index);
  // Call this for a copy that was refused, or lost by the worker's machine: no work was done, so the next
  // copy does not count as a duplicate.
  void WithdrawAcceptance(size_t index);
  // Removes the copy from the list. The remaining copy is no longer doubted.
  Attempt Remove(size_t index);
  // Keeps the memory of a removed copy for the next one. Returns false, and leaves the buffer with the
  // attempt, if the transport still holds it.
  bool KeepMemory(Attempt& attempt);
  // After Remove: the attempt failed, or its bytes were invalid. `pause`: before the part is requested again.
  void AddFailure(FailedAttempt failure, absl::Duration pause, absl::Time now);
  // After Remove: the bytes' hash differed. `pause`: before this worker is asked again.
  void AddDamage(const std::string& endpoint, absl::Duration pause, absl::Time now);
  // The copy's bytes are complete and valid. The caller ends the other copies.
  void Complete(size_t index, PartView bytes);

  // ---- Decisions

  // True if the copy makes no progress (StaleAt). `worker` sends it and may be null.
  bool IsStale(const Attempt& attempt, const Worker* worker, absl::Duration progress_timeout,
               absl::Time now) const;
  // Workers that must not be asked now: they have a copy already, or are avoided.
  std::set<std::string> Excluded(absl::Time now) const;
  // Workers whose attempts failed.
  std::set<std::string> FailedOn() const;
  // Workers whose attempts failed or stalled.
  Dislikes Disliked() const;
  // DataLoss after failed attempts on three distinct workers (fewer if fewer are listed); OK before.
  absl::Status Verdict(size_t num_workers) const;
  // "step 3 llm rank 0 ...: asked a:7000 (accepted, queue 2, nothing new for 4.1s)".
  std::string Describe(absl::Time now) const;
};

// When a copy counts as stale: `progress_timeout` after its last progress. While its bytes are arriving, any
// bytes from its worker (last at `bytes_moved`) count as progress, and the first bytes get additional time,
// the part's size at 4 MiB/s, since the worker may be sending other parts first.
absl::Time StaleAt(const Attempt& attempt, uint64_t bytes, absl::Time bytes_moved,
                   absl::Duration progress_timeout);

}  // namespace evenkeel::client
