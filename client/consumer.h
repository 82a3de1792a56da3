// The consumer: receives one global rank's parts of every step, in order, with bounded prefetch over many
// workers.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(auto consumer, Consumer::Connect({.endpoints = "a:7000,b:7000"}));
//     for (;;) {
//       EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<const StepData> step, consumer->Next());
//       for (const PartData& part : step->parts) Use(part.view);  // valid while `step` lives
//     }
//
// Thread safety: Next, Seek and State are for one thread; StepData may be read and released from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/context_groups.h"
#include "core/mesh.h"
#include "core/part.h"
#include "core/plan.h"
#include "transport/credentials.h"

namespace evenkeel::client {

struct ConsumerOptions {
  std::string endpoints;  // "host:port,host:port" or "dns:///name:port"
  uint32_t rank = 0;      // global rank
  uint64_t first_step = 0;
  uint64_t num_steps =
      UINT64_MAX;  // steps to prefetch for; Next past the end, or the stream's, is OutOfRange
  // auto (sealed memory from workers of this machine and user, UCX over RDMA, else gRPC) | memory | ucx | grpc
  std::string transport = "auto";
  bool require_rdma = false;
  std::string devices;
  // Allows UCX over TCP. Every process that reaches its ports can then read and write this process's memory.
  bool trusted_data_network = false;
  uint64_t prefetch_bytes = 1ull << 30;  // receive memory; the head step is reserved
  uint32_t prefetch_steps = 4;
  absl::Duration connect_timeout = absl::Seconds(30);   // Connect: until the first worker answers
  absl::Duration step_timeout = absl::Minutes(5);       // Next: errors well before a collective's watchdog
  absl::Duration progress_timeout = absl::Seconds(10);  // a worker that is silent this long is replaced
  std::string expect_stream_digest;                     // empty: the one that the workers serve
  // A worker with another digest is refused (FailedPrecondition).
  std::string expect_layout_digest;
  // Everything of the rank's replicas, whatever the rank's role in the mesh: for a rank that receives for others.
  bool whole = false;
  bool all_loads = false;   // StepData::loads of every rank: bytes and time grow with the number of ranks
  transport::TlsFiles tls;  // all three or none
  // One line per event: workers lost, refused or replaced. Called from the consumer's threads. Default:
  // standard error.
  std::function<void(const std::string&)> log;
};

// A phase of the job, as the workers describe it.
struct PhaseInfo {
  Phase phase = Phase::kLlm;
  std::vector<uint32_t> ranks;       // global rank of each replica, or of its leader
  bool once_per_microbatch = false;  // else once per step; always true for the llm
  Mesh mesh;                         // its `ranks` are empty where every replica is one rank
};

struct PartData {
  PartName name;
  PartView view;                     // views into memory owned by the StepData
  std::span<const std::byte> bytes;  // the part as received, owned by the StepData
  PartRole role = PartRole::kWhole;  // whose fields it has
};

// One quantity over the ranks of a phase.
struct LoadSpread {
  double max = 0;
  double mean = 0;
  std::optional<double> own;  // of this rank; nullopt if the phase does not run on it
  std::vector<double> all;    // per phase rank; empty without ConsumerOptions::all_loads
};

// What the ranks of a phase compute, before balancing and as planned. The loads are in the units of the job's
// cost; tokens are counted for the llm, input rows for encoders.
struct PhaseLoads {
  Phase phase = Phase::kLlm;
  uint32_t num_ranks = 0;
  LoadSpread before, after;
  LoadSpread tokens_before, tokens_after;  // integers, except the mean
};

// This rank's side of one exchange.
struct LocalRoute {
  Phase from;
  Phase to = Phase::kLlm;
  uint32_t microbatch = 0;
  uint32_t num_ranks = 0;  // size of RouteGroup(phases, from, to), which peers index
  bool all_stay = false;   // no row of any rank goes to another: nobody needs the exchange
  RankRoute route;
};

// The global ranks of both phases, ascending and distinct: the ranks that take part in the exchanges between
// them. Where replicas have several members these are the leaders.
std::vector<uint32_t> RouteGroup(const std::vector<PhaseInfo>& phases, const Phase& from, const Phase& to);

// With dynamic context parallelism and a rank of the llm: the groups of its replica. All are empty otherwise.
struct StepGroups {
  std::vector<RankGroup> of_microbatch;  // [microbatches]
  // Groups of several ranks that the rank is in, in each of the next steps; ascending.
  std::vector<std::vector<RankGroup>> ahead;
};

struct StepData {
  uint64_t step = 0;
  uint32_t num_microbatches = 0;
  uint64_t loss_tokens = 0;  // of the whole step
  uint64_t num_samples = 0;
  std::vector<PartData> parts;  // canonical order
  std::vector<LocalRoute> routes;
  std::vector<PhaseLoads> loads;
  StepGroups groups;

  virtual ~StepData() = default;  // releases the receive memory
};

// Digest of everything that one rank received in a step: its parts in canonical order (core/part.h:
// DigestPart), and with dynamic groups the group of every microbatch.
Digest DigestStep(const StepData& step);

struct ConsumerState {
  uint64_t next_step = 0;
  std::string stream_digest;
  std::string layout_digest;
};

struct ConsumerStats {
  uint64_t steps = 0, parts = 0, bytes = 0;
  uint64_t requests = 0, duplicate_requests = 0, replaced_workers = 0, refused = 0, hash_failures = 0;
  uint64_t grey_workers = 0;  // workers without progress, which are asked last (worker_standing.h)
  double wait_seconds = 0;    // spent inside Next and Wait, including a wait in progress
  std::string transport;      // "ucx tcp/lo"
};

class Consumer {
 public:
  virtual ~Consumer() = default;

  // Blocks for at most connect_timeout. Unavailable: no worker answered in time. FailedPrecondition: digests
  // or stream version differ (names both). InvalidArgument: a bad option. PermissionDenied: TLS.
  static absl::StatusOr<std::unique_ptr<Consumer>> Connect(ConsumerOptions options);

  // The next step, after at most step_timeout. DeadlineExceeded: it did not arrive (names what is missing).
  // OutOfRange: after num_steps. DataLoss: attempts failed on three distinct workers (names the sample and
  // the line for the job's `exclude`). FailedPrecondition: called in a forked child.
  virtual absl::StatusOr<std::shared_ptr<const StepData>> Next() = 0;
  // Waits at most `at_most` for the next step. Returns true if Next() would return at once, with the step or
  // an error. For callers that must do something while they wait, such as handling a Python signal. The time
  // counts towards step_timeout.
  virtual bool Wait(absl::Duration at_most) = 0;
  // Drops all prefetched steps; the next Next() returns `step`.
  virtual absl::Status Seek(uint64_t step) = 0;

  virtual ConsumerState state() const = 0;
  virtual ConsumerStats stats() const = 0;
  virtual const std::vector<PhaseInfo>& phases() const = 0;  // constant over a consumer's life
  // What members of a context group take of their sequences: "whole", "zigzag" or "contiguous".
  virtual const std::string& sequences() const = 0;
  // The sizes of dynamic context groups, ascending from 1 on; empty: the job has no such groups.
  virtual const std::vector<uint32_t>& group_sizes() const = 0;
  // Steps of the stream from 0 on; nullopt: it has no end.
  virtual std::optional<uint64_t> num_steps() const = 0;
};

}  // namespace evenkeel::client
