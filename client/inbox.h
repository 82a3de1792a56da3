// The queue of events through which everything reaches the consumer's loop, in the order of arrival.
//
// The threads of the control plane, the transport, the endpoint watch and the trainer post; the loop takes.
// Posting never waits for work and takes no other lock, so that a transport may post from its callback.
//
// Thread safety: Post from any thread; Take from the loop's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/step_description.h"
#include "core/annotated_mutex.h"
#include "core/failure.h"

namespace evenkeel::client {

// What a worker reports about itself and its job.
struct WorkerDescription {
  std::string job_name;
  std::string release;
  uint32_t stream_version = 0;
  uint32_t part_format = 0;
  std::string stream_digest;
  std::string layout_digest;
  std::vector<std::string> transports;  // in the worker's order of preference
  bool draining = false;
  std::string sequences;
  std::vector<uint32_t> group_sizes;
  std::optional<uint64_t> num_steps;  // of the stream; without one it has no end
  std::vector<PhaseInfo> phases;
};

struct OpenedSession {
  uint64_t id = 0;
  std::string address;  // of the worker's data plane
  std::string transport_detail;
  WorkerDescription worker;
};

// One event of a part's request; proto/service.proto defines their legal order.
struct PartEvent {
  enum class Kind { kAccepted, kRefused, kProgress, kSent, kFailed };
  Kind kind = Kind::kAccepted;
  uint32_t queue = 0;                           // accepted
  double retry_after_seconds = 0;               // refused
  std::string text;                             // refused: reason; progress: stage; failed: message
  uint64_t done = 0, total = 0;                 // progress
  uint64_t length = 0;                          // sent
  int code = 0;                                 // failed: an absl::StatusCode
  std::string exclude;                          // failed: a line for the job's `exclude` list
  FailureKind failure = FailureKind::kAttempt;  // failed
};

// A unary call failed, or a part's stream of events ended.
struct CallEnded {
  absl::Status status;
};
// The data plane no longer writes into a request's buffer. OK: all bytes are there and their hash matches.
struct Received {
  uint64_t request = 0;
  absl::Status status;
};
struct EndpointsChanged {
  absl::Status status;
  std::vector<std::string> sorted;
};
struct Woken {};

struct Event {
  uint64_t call = 0;  // number of the control plane's call; 0 for events that belong to no call
  std::variant<Woken, WorkerDescription, OpenedSession, StepDescription, PartEvent, CallEnded, Received,
               EndpointsChanged>
      what;
};

class Inbox {
 public:
  void Post(Event event) {
    MutexLock lock(mutex_);
    events_.push_back(std::move(event));
    posted_.NotifyOne();
  }
  // Waits at most `timeout` for the first event; returns all of them, possibly none.
  std::vector<Event> Take(absl::Duration timeout) {
    MutexLock lock(mutex_);
    if (events_.empty()) posted_.WaitFor(mutex_, timeout);
    return std::exchange(events_, {});
  }

 private:
  Mutex mutex_;
  CondVar posted_;
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel::client
