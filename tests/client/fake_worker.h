// A worker in the test's own process: the real control plane and data plane around parts that are made up. It
// can be told to misbehave in every way that a consumer must survive.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/failure.h"
#include "core/job.h"
#include "core/part.h"

namespace evenkeel::client {

// What a worker does with one request for a part.
struct Behaviour {
  enum class Kind {
    kServe,
    kRefuse,         // Refused{retry_after}
    kDropLater,      // Accepted, then Refused
    kDeaf,           // no answer at all until cancelled
    kSilent,         // Accepted, then nothing until cancelled
    kStuck,          // Accepted, then the same progress again and again
    kSlow,           // Accepted, then growing progress for `duration`, then serves
    kQuiet,          // Accepted, then nothing for `duration`, then serves
    kFail,           // Accepted, then Failed{code, message, exclude}
    kWrongHash,      // sends bytes that are not those of the hash
    kWrongLength,    // says that it sent another length
    kWrongPart,      // sends another part's bytes of the same size
    kDieMidPart,     // Accepted, progress, then the whole worker is gone
    kForgetSession,  // NOT_FOUND
    kNeverDeliver,   // says Sent, and sends nothing
  };
  Kind kind = Kind::kServe;
  absl::Duration duration = absl::Milliseconds(20);
  int code = 13;
  std::string message = "made up";
  std::string exclude = {};
  FailureKind failure = FailureKind::kAttempt;
};

struct FakeWorkerOptions {
  std::string transport = "grpc";
  std::string stream_digest = "00000000000000000000000000000001";
  std::string layout_digest = "00000000000000000000000000000002";
  uint32_t stream_version = kStreamVersion;
  bool draining = false;
  uint32_t part_format = kPartFormatVersion;
  uint64_t part_bytes = 4096;  // about
  // Called for every request; from many threads.
  std::function<Behaviour(const PartName& name, uint32_t attempt)> behave;
  std::function<void(uint64_t step)> before_describing;
  // Not OK: the answer to DescribeStep, with its kind.
  std::function<absl::Status(uint64_t step)> describe_failure;
};

class FakeWorker {
 public:
  explicit FakeWorker(FakeWorkerOptions options = {});
  ~FakeWorker();
  FakeWorker(const FakeWorker&) = delete;
  FakeWorker& operator=(const FakeWorker&) = delete;

  const std::string& endpoint() const;
  // Gone at once, calls in flight broken off.
  void Die();

  int requests() const;
  int sessions() const;
  int cancelled() const;    // requests that the consumer gave up
  int max_attempt() const;  // the greatest `attempt` of a request
  // What the consumers' sessions were told of waiting: all, and what came while there was nothing to ask for.
  double told_wait_seconds() const;
  int wait_reports() const;

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

// The step as every fake worker describes it: the parts and their sizes, a pure function.
std::vector<PartName> FakeParts(uint64_t step, uint32_t rank);
std::vector<std::byte> FakePart(const PartName& name, uint64_t part_bytes);

}  // namespace evenkeel::client
