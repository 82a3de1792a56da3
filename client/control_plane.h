// Calls to workers over gRPC, asynchronous: the consumer's loop starts calls here, and their events arrive in
// its inbox.
//
// It translates and decides nothing. Every call has a deadline. A unary call posts one event: its answer, or
// CallEnded on failure. RequestPart posts a PartEvent for each message of the worker, then CallEnded. Events
// of a call may still be in the inbox after Cancel or the destructor; readers ignore unknown call numbers.
//
// Thread safety: all members may be called from many threads. The destructor cancels all calls and waits for
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/inbox.h"
#include "transport/credentials.h"
#include "transport/transport.h"

namespace evenkeel::client {

using CallId = uint64_t;

struct SessionRequest {
  std::string stream_digest;  // pinned, or empty
  std::string layout_digest;
  uint32_t stream_version = 0;
  uint32_t rank = 0;
  std::string transport;
  std::string address;         // of this process's data plane, opaque (transport/transport.h)
  std::string memory_address;  // transport::Sink::memory_address
  transport::Secret secret = {};
};

struct PartRequest {
  uint64_t session = 0;
  uint64_t request = 0;
  PartName name;
  uint32_t attempt = 0;
  double wait_seconds = 0;  // as in proto/service.proto
  PartRole role = PartRole::kWhole;
};

// What to describe of a step.
struct StepQuestion {
  bool all_loads = false;
  bool whole = false;
};

class ControlPlane {
 public:
  virtual ~ControlPlane() = default;

  // `certified_name`: the name in the workers' certificates if endpoints are IP addresses; else empty.
  // `certificates`: null for insecure channels, which may dial loopback alone. `inbox` must outlive this.
  static std::unique_ptr<ControlPlane> Make(const std::shared_ptr<transport::Certificates>& certificates,
                                            const std::string& certified_name, Inbox* inbox);

  virtual CallId Describe(const std::string& endpoint, absl::Duration timeout) = 0;
  virtual CallId OpenSession(const std::string& endpoint, const SessionRequest& request,
                             absl::Duration timeout) = 0;
  virtual CallId CloseSession(const std::string& endpoint, uint64_t session, absl::Duration timeout) = 0;
  virtual CallId DescribeStep(const std::string& endpoint, uint64_t session, uint64_t step, uint32_t rank,
                              StepQuestion question, absl::Duration timeout) = 0;
  virtual CallId RequestPart(const std::string& endpoint, const PartRequest& request,
                             absl::Duration timeout) = 0;
  // Fire and forget: its answer carries no information.
  virtual CallId ReportWait(const std::string& endpoint, uint64_t session, double wait_seconds,
                            absl::Duration timeout) = 0;
  virtual void Cancel(CallId call) = 0;
  // Drops the connection to the endpoint; its calls in flight end.
  virtual void Forget(const std::string& endpoint) = 0;
  // Waits until all calls have ended, at most `timeout`. Call it after CloseSession, so that workers hear of
  // the end.
  virtual void Settle(absl::Duration timeout) = 0;
};

}  // namespace evenkeel::client
