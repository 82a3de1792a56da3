// A worker: one process that serves the parts of one job.
//
//   EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, OpenStream(std::move(job)));
//   EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Worker::Start(options, std::move(stream)));
//   std::cout << worker->address() << "\n";     // "127.0.0.1:40123"
//   ...
//   worker->Drain(absl::Seconds(25));           // refuses new work, finishes what it accepted
//   worker->Stop();
//
// Thread safety: Drain and Stop from one thread; the rest from any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/part_pool.h"
#include "server/stream.h"
#include "transport/credentials.h"

namespace evenkeel {

struct WorkerOptions {
  std::string listen = "127.0.0.1:0";  // control plane; port 0: any free one
  std::string metrics;                 // "host:port" of /metrics; empty: none
  std::string transport = "auto";      // auto (all that work here) | ucx | grpc
  bool require_rdma = false;
  bool shared_memory = false;
  std::string devices;  // ucx
  transport::TlsFiles tls;
  uint32_t threads = 0;                // 0: one for each CPU
  uint64_t memory_bytes = 4ull << 30;  // of parts
  uint64_t plan_bytes = 256ull << 20;  // of plans
  uint32_t steps_ahead = 4;
  uint32_t max_sessions = 4096;
  absl::Duration session_idle = absl::Seconds(60);
  absl::Duration send_timeout = absl::Seconds(60);
  absl::Duration progress_interval = absl::Seconds(1);
  // For tests of faults.
  absl::Duration fault_unit_delay;
  uint32_t fault_fail_every = 0;
};

class Worker {
 public:
  virtual ~Worker() = default;

  // Listens when it returns. InvalidArgument: options; PermissionDenied: not loopback and no certificates;
  // Unavailable: cannot listen; FailedPrecondition: RDMA is required and not there, or a part of the first
  // step exceeds the memory.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options,
                                                       std::unique_ptr<Stream> stream);

  virtual std::string address() const = 0;          // of the control plane, as to be dialled
  virtual std::string metrics_address() const = 0;  // empty: none
  virtual std::string transports() const = 0;       // "ucx tcp/lo, grpc"
  virtual const Stream& stream() const = 0;

  // Health becomes NOT_SERVING, new sessions and parts are refused, accepted ones finished. False where some
  // were not within `timeout`.
  virtual bool Drain(absl::Duration timeout) = 0;
  // Ends everything. Called by the destructor, too.
  virtual void Stop() = 0;
};

}  // namespace evenkeel
