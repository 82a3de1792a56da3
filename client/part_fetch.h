// One part on its way: the copies asked for, what became of them, and when to give up. No calls are made
// here.
//
// Thread safety: none; the fetch loop owns it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/control_plane.h"
#include "client/receive_memory.h"

namespace evenkeel {

inline constexpr size_t kMaxCopies = 2;           // of one request at the same time
inline constexpr size_t kDistinctWorkers = 3;     // whose failure means that the data is at fault
inline constexpr size_t kMaxFailedAttempts = 12;  // where three distinct workers are never reached
inline constexpr size_t kMaxDamagedArrivals = 6;  // wrong hashes of one part

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
  absl::Time advanced;   // when the worker last got further
  bool doubted = false;  // another copy was asked for
};

// An attempt that the worker itself ended with an error, or whose bytes made no sense.
struct FailedAttempt {
  std::string endpoint;
  std::string message;
  std::string exclude;  // a line for the job's `exclude` list; may be empty
};

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
  std::map<std::string, absl::Time> avoid;  // worker -> not before
  absl::Time not_before = absl::InfinitePast();

  bool complete = false;
  ReceiveBuffer buffer;  // complete: the bytes
  PartView view;

  // Workers that must not be asked now: they have a copy, or are avoided.
  std::set<std::string> Excluded(absl::Time now) const;
  // Workers whose attempts failed.
  std::set<std::string> Disliked() const;
  // DataLoss after failed attempts on three distinct workers (on fewer where fewer are known); OK before.
  absl::Status Verdict(size_t num_workers) const;
  // "step 3 llm rank 0 ...: asked a:7000 (accepted, queue 2, nothing new for 4.1s)".
  std::string Describe(absl::Time now) const;
};

// When a copy counts as making no progress. `progress_timeout` after it last got further; once its bytes are
// on the way, additionally what they take on a link so slow that nobody should train over it.
absl::Time StaleAt(const Attempt& attempt, uint64_t bytes, absl::Duration progress_timeout);

}  // namespace evenkeel
