// What happened, in the order in which it did: the one way into the consumer's loop.
//
// The control plane's thread, the transport's threads, the endpoint watch and the trainer's threads post; the
// loop takes. Posting never blocks and takes no other lock, so that a transport's callback may do it.
//
// Thread safety: Post from any thread; Take from the loop's thread.
#pragma once

#include <cstdint>
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

// A worker's word about itself.
struct WorkerDescription {
  std::string job_name;
  std::string release;
  uint32_t stream_version = 0;
  uint32_t part_format = 0;
  std::string stream_digest;
  std::string layout_digest;
  std::vector<std::string> transports;  // in the worker's order of preference
  bool draining = false;
  std::vector<PhaseInfo> phases;
};

struct OpenedSession {
  uint64_t id = 0;
  std::string address;  // of the worker's data plane
  std::string transport_detail;
  WorkerDescription worker;
};

// One event of a part's request, as in proto/service.proto.
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

// The end of a call: of a unary one that failed, or of a part's stream.
struct CallEnded {
  absl::Status status;
};
// The data plane is done with a request's buffer.
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
  uint64_t call = 0;  // of the control plane; 0 where it is none's
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
  // Everything posted, after at most `timeout`; possibly nothing.
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
