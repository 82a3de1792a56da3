// The state of one step until it is delivered: its description, then its parts. Each event is one function
// here; no calls are made.
//
// Thread safety: none; the fetch loop owns it under its mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/consumer.h"
#include "client/part_fetch.h"
#include "client/receive_memory.h"
#include "client/retry_policy.h"
#include "client/step_description.h"
#include "client/worker_table.h"

namespace evenkeel::client {

// Asks workers to describe a step: records who was asked, how that ended, and when the next one may be asked.
class DescriptionFetch {
 public:
  // The cause of a failed call.
  enum class Failure {
    kLate,          // no answer in time
    kNotYet,        // the worker is still preparing the answer
    kMachine,       // the worker's machine failed, not the data
    kSessionEnded,  // the worker was restarted or closed the session
    kWorkerLost,    // the worker is unreachable
    kBusy,          // the worker or the network is overloaded
    kPlan,          // the step cannot be planned
  };

  // `patience`: the time for the first answer; it doubles with every description that came too late.
  explicit DescriptionFetch(absl::Duration patience) : patience_(patience) {}

  bool MayAsk(absl::Time now) const { return call_ == 0 && now >= not_before_; }
  // 0: no call is in flight.
  CallId call() const { return call_; }
  // The last worker asked, and when.
  const std::string& endpoint() const { return endpoint_; }
  absl::Time asked() const { return asked_; }
  absl::Duration patience() const { return patience_; }
  // Workers that failed recently.
  Dislikes Avoided(absl::Time now) const;

  void Ask(CallId call, const std::string& endpoint, absl::Time now);
  void Finish() { call_ = 0; }
  // Records the failure and when to ask again. `is_known`: the worker is still in the table; if not, its
  // session cannot be lost. `max_patience`: the trainer's own timeout.
  Failure Fail(const absl::Status& status, bool is_known, absl::Duration max_patience, Jitter& jitter,
               absl::Time now);
  // The error of `step` after too many kPlan failures (DataIsAtFault); OK before.
  absl::Status Verdict(uint64_t step, size_t num_workers) const;

  bool has_troubles() const { return !troubles_.empty(); }
  // "; no worker has described it (a:7000: ...)".
  std::string Describe(absl::Time now) const;

 private:
  CallId call_ = 0;
  std::string endpoint_;
  absl::Time asked_;
  absl::Duration patience_;
  absl::Time not_before_ = absl::InfinitePast();
  std::map<std::string, absl::Time> avoid_;  // worker -> not asked before
  std::vector<FailedAttempt> failed_;        // kPlan
  absl::StatusCode last_failure_ = absl::StatusCode::kOk;
  MachineTroubles troubles_;
  std::string progress_;  // what a kNotYet worker is doing
};

struct StepFetch {
  StepFetch(uint64_t number, absl::Duration patience) : step(number), asking(patience) {}

  uint64_t step = 0;
  DescriptionFetch asking;
  std::optional<StepDescription> description;
  std::vector<PartFetch> parts;
  size_t num_complete = 0;
  bool granted = false;  // every part got its memory
  absl::Status error;

  bool ready() const { return description.has_value() && num_complete == parts.size(); }
  bool is_decided() const { return ready() || !error.ok(); }
  // True if a machine failed and what it was asked for is still missing.
  bool HasTroubles() const;

  // Takes the description. Sets `error` if the step does not fit into `memory`.
  void Describe(StepDescription answer, const ReceiveMemory& memory);
  // Takes memory for the parts that have none. Returns false if the budget has no room for one of them now.
  bool GrantMemory(ReceiveMemory& memory, bool is_head);
  // Complete, or failed for good: `part.Verdict` decides.
  void Complete(PartFetch& part, size_t index, PartView bytes);
  void Judge(const PartFetch& part, size_t num_workers);
  // "; awaited: step 3 llm rank 0 ...".
  std::string DescribeMissing(absl::Time now) const;
  // Moves the parts and the description's data out; the step is empty afterwards. Requires ready().
  std::shared_ptr<const StepData> Deliver();
};

// One attempt and the part and step that own it.
struct AttemptRef {
  StepFetch* step = nullptr;
  PartFetch* part = nullptr;
  size_t index = 0;

  Attempt& attempt() const { return part->attempts[index]; }
};

// The window of steps by number, ascending.
using StepWindow = std::map<uint64_t, StepFetch>;
std::optional<AttemptRef> FindAttempt(StepWindow& steps, const std::function<bool(const Attempt&)>& matches);

// True for status codes that mean the worker is unreachable or gone.
bool IsLost(absl::StatusCode code);

}  // namespace evenkeel::client
