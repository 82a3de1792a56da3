// One step on its way: its description, then its parts. Each event is one function here; no calls are made.
//
// Thread safety: none; the fetch loop owns them under its mutex.
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

// Asking workers to describe a step: which one was asked, how that ended, and when the next one may be asked.
class DescriptionFetch {
 public:
  // What a failed call shows.
  enum class Failure {
    kLate,          // no answer in time
    kNotYet,        // the worker works on the answer
    kMachine,       // the worker's machine failed, not the data
    kSessionEnded,  // the worker was restarted, or had forgotten the session
    kWorkerLost,    // the worker is unreachable
    kBusy,          // the worker or the network is overloaded
    kPlan,          // the step cannot be planned
  };

  // `patience`: for the first answer; it doubles with every description that came too late.
  explicit DescriptionFetch(absl::Duration patience) : patience_(patience) {}

  bool MayAsk(absl::Time now) const { return call_ == 0 && now >= not_before_; }
  // 0: nobody is asked now.
  CallId call() const { return call_; }
  // Of the last worker asked, and when.
  const std::string& endpoint() const { return endpoint_; }
  absl::Time asked() const { return asked_; }
  absl::Duration patience() const { return patience_; }
  // Workers that failed a moment ago.
  Dislikes Avoided(absl::Time now) const;

  void Ask(CallId call, const std::string& endpoint, absl::Time now);
  void Finish() { call_ = 0; }
  // Records why the call failed and when to ask again. `is_known`: the worker is still in the table; a
  // session or worker that is not cannot be lost. `max_patience`: what the trainer waits for.
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
  std::map<std::string, absl::Time> avoid_;  // worker -> not before
  std::vector<FailedAttempt> failed_;        // kPlan
  absl::StatusCode last_failure_ = absl::StatusCode::kOk;
  MachineTroubles troubles_;
  std::string progress_;  // of a worker that works on the answer
};

struct StepFetch {
  StepFetch(uint64_t number, absl::Duration patience) : step(number), asking(patience) {}

  uint64_t step = 0;
  DescriptionFetch asking;
  std::optional<StepDescription> description;
  std::vector<PartFetch> parts;
  size_t num_complete = 0;
  bool granted = false;  // every part has had its memory
  absl::Status error;

  bool ready() const { return description.has_value() && num_complete == parts.size(); }
  bool is_decided() const { return ready() || !error.ok(); }
  // A machine failed and what it was asked for is still missing.
  bool HasTroubles() const;

  // The answer to the call for a description. An error of the step where it does not fit into `memory`.
  void Describe(StepDescription answer, const ReceiveMemory& memory);
  // Takes memory for the parts that have none. False where the budget has no room for one of them now.
  bool GrantMemory(ReceiveMemory& memory, bool is_head);
  // Complete, or failed for good: `part.Verdict` decides.
  void Complete(PartFetch& part, size_t index, PartView bytes);
  void Judge(const PartFetch& part, size_t num_workers);
  // What is missing: "; awaited: step 3 llm rank 0 ...".
  std::string DescribeMissing(absl::Time now) const;
  // The parts and what the description has; the step is empty afterwards. Requires ready().
  std::shared_ptr<const StepData> Deliver();
};

// The copy that a call or a request belongs to.
struct AttemptRef {
  StepFetch* step = nullptr;
  PartFetch* part = nullptr;
  size_t index = 0;

  Attempt& attempt() const { return part->attempts[index]; }
};

// The window of steps, in order.
using StepWindow = std::map<uint64_t, StepFetch>;
std::optional<AttemptRef> FindAttempt(StepWindow& steps, const std::function<bool(const Attempt&)>& matches);

// True for the codes by which a call shows that its worker is unreachable or gone.
bool IsLost(absl::StatusCode code);

}  // namespace evenkeel::client
