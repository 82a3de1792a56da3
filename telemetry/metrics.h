// The counters and measurements of a worker. docs/metrics.md lists every metric with its labels.
//
// The number of label values is bounded: no sample names, no addresses of consumers. Only metrics.cc uses
// prometheus-cpp. Thread safety: all members may be called from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "core/words.h"

namespace evenkeel::telemetry {

// The stages of a part, each with a histogram of durations.
enum class Stage : uint8_t { kPlan, kQueue, kRead, kMedia, kText, kHash, kPart, kSend };
inline constexpr int kNumStages = 8;
std::string_view StageName(Stage stage);

// The result of a request for a part.
enum class Outcome : uint8_t { kSent, kRefused, kDropped, kCancelled, kFailed };
inline constexpr int kNumOutcomes = 5;
std::string_view OutcomeName(Outcome outcome);

// Why a connection was closed instead of served.
enum class Refusal : uint8_t {
  kHandles,   // too few handles are left
  kPlaces,    // max_connections are open
  kAddress,   // max_of_address are open
  kSilent,    // it sent nothing in time, or while others were waiting
  kProtocol,  // its first bytes belong to another protocol
};
inline constexpr int kNumRefusals = 5;
std::string_view RefusalName(Refusal refusal);

struct ByteGauges {
  uint64_t queued = 0;  // committed to parts that are not begun
  uint64_t producing = 0;
  uint64_t ready = 0;      // kept without a request that waits for them
  uint64_t in_flight = 0;  // handed to a transport
  uint64_t budget = 0;
};

class Metrics {
 public:
  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  std::string Text() const;  // in Prometheus' text format

  // What is counted by phase is there at zero from now on.
  void BeginPhases(std::span<const Phase> phases);
  void ObserveStage(Stage stage, absl::Duration duration);
  void CountSample(bool valid);
  void CountItem(const Phase& phase, bool valid);
  // `reason`: the name of a status code, or one of a few words.
  void CountError(std::string_view reason);
  // A decode cut or filled to its planned length: "samples_filled", "samples_trimmed", "frames_repeated".
  void CountAdjusted(std::string_view kind, uint64_t count);
  // `limit`: a field of the job's limits that an item exceeded.
  void CountLimit(std::string_view limit);
  // A decoder process that was replaced: "crash", "cpu", "memory", "forbidden_call", "still", "killed".
  void CountDecoderRestart(std::string_view reason);
  void CountTokens(const Phase& phase, uint64_t tokens);
  void CountSent(std::string_view transport, uint64_t bytes);
  void CountAbandoned(uint64_t buffers);  // new buffers of Source::buffers_abandoned
  void CountRequest(Outcome outcome);
  void CountDuplicateRequest();  // a second or later attempt
  void CountShared();            // a request whose part was already made or being made
  void AddConsumerWait(double seconds);
  void SetImbalance(const Phase& phase, double before, double after);
  void SetTransport(std::string_view transport, std::string_view device, bool is_rdma);
  void SetStream(std::string_view job, std::string_view stream_digest, std::string_view layout_digest);
  void SetBytes(const ByteGauges& bytes);
  void SetQueue(uint64_t queued_parts, uint64_t producing_parts, uint64_t ready_parts);
  void SetSessions(uint64_t sessions);
  void SetRanks(uint64_t ranks);              // distinct global ranks of the job, over all phases
  void SetConnections(uint64_t connections);  // of the control plane
  void CountRefusedConnections(std::string_view reason, uint64_t count);  // one of RefusalName
  void CountSelfTestFailures(uint64_t count);
  void CountLogLinesDropped(uint64_t count);
  // New requests to object stores and HTTP servers: with a good answer, and without; made a second time among them; their
  // time and bytes.
  void CountStoreRequests(uint64_t answered, uint64_t failed, uint64_t repeated, double seconds,
                          uint64_t bytes);
  // New reads of objects: fetched before they were needed (`ready`), on their way then, not fetched ahead.
  void CountStoreReads(uint64_t ready, uint64_t late, uint64_t direct);
  // New lookups in the cache on a disk; `damaged` are among the misses. And ranges that it could not write.
  void CountCacheReads(uint64_t hits, uint64_t misses, uint64_t damaged, uint64_t unwritten);
  void SetBytesAhead(uint64_t bytes);  // requested from stores, or fetched and not yet read
  void SetDraining(bool draining);
  // This worker's own certificate: time until it expires (negative afterwards), and whether its files are
  // unusable now, so that the last good ones are in use.
  void SetCertificate(absl::Duration left, bool files_refused);
  void CountCertificateReplacements(uint64_t replacements);  // the new ones

 private:
  struct State;
  void BeginAtZero();
  void CountItems(const Phase& phase, bool valid, uint64_t count);

  std::unique_ptr<State> state_;
};

}  // namespace evenkeel::telemetry
