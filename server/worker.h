// A worker: one process that serves the parts of one job.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<stream::Stream> stream, stream::OpenStream(std::move(job)));
//     EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Worker::Start(options, std::move(stream)));
//     std::cout << worker->address() << "\n";  // "127.0.0.1:40123"
//     worker->Drain(absl::Seconds(25));        // refuses new work, finishes what it accepted
//     worker->Stop();
//
// Thread safety: Drain and Stop from one thread; the rest from any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "isolation/isolated_processor.h"
#include "isolation/python_pool.h"
#include "server/part_pool.h"
#include "stream/stream.h"
#include "transport/credentials.h"

namespace evenkeel::server {

struct WorkerOptions {
  std::string listen = "127.0.0.1:0";  // control plane; port 0: any free one
  std::string metrics;                 // "host:port" of /metrics; empty: none
  std::string probes;                  // "host:port" of /healthz and /readyz; empty: none
  // auto (sealed memory for consumers of this machine, gRPC, and UCX if it has RDMA or a trusted network) |
  // memory | ucx | grpc
  std::string transport = "auto";
  bool require_rdma = false;
  std::string devices;                // ucx
  std::string data_ports;             // ucx over TCP: "7100-7131"; empty: any free one
  bool trusted_data_network = false;  // ucx over TCP; see transport::Options::trusted_network
  transport::TlsFiles tls;
  uint32_t threads = 0;                // 0: one for each CPU
  uint64_t memory_bytes = 4ull << 30;  // of parts, copies in sealed memory included
  uint64_t plan_bytes = 256ull << 20;  // of plans
  uint32_t steps_ahead = 4;
  uint32_t max_sessions = 0;  // 0: as many as file handles allow, at most 4,096
  // The stream's processor, if media are decoded in decoder processes; else null.
  const isolation::IsolatedProcessor* isolated = nullptr;
  // The Python processes of the stream's processor, if it is in Python; else null.
  isolation::PythonPool* python = nullptr;
  absl::Duration session_idle = absl::Seconds(60);
  absl::Duration send_timeout = absl::Seconds(60);  // of one part, from the first byte to the last
  absl::Duration progress_interval = absl::Seconds(1);
  absl::Duration self_test = absl::Seconds(10);  // between tests of the control plane; 0: none
  // Called once, from a thread of the worker, when it can no longer serve and only a new process could: then
  // drain, stop, and exit with an error. It must not block.
  std::function<void(const absl::Status&)> on_failure;
  // For tests of faults.
  absl::Duration fault_unit_delay;
  uint32_t fault_fail_every = 0;
  bool fault_deaf = false;  // the control plane accepts no connection
};

class Worker {
 public:
  virtual ~Worker() = default;

  // When it returns, the worker listens. InvalidArgument: bad options, among them an address other than
  // loopback without certificates, or more sessions than file handles allow; AlreadyExists: an address is in
  // use; errors of Listen (server/listener.h); FailedPrecondition: RDMA is required and missing, UCX is
  // requested without RDMA and without a trusted network, or a part of the first step exceeds the memory.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(const WorkerOptions& options,
                                                       std::unique_ptr<stream::Stream> stream);

  virtual std::string address() const = 0;          // of the control plane, for clients
  virtual std::string metrics_address() const = 0;  // empty: not served
  virtual std::string probes_address() const = 0;   // empty: not served
  virtual std::string transports() const = 0;       // "ucx tcp/lo, grpc"
  virtual const stream::Stream& stream() const = 0;

  // Health becomes NOT_SERVING; new sessions and parts are refused, accepted ones finished. Returns false if
  // some were not finished within `timeout`.
  virtual bool Drain(absl::Duration timeout) = 0;
  // Ends all threads and connections. The destructor calls it, too.
  virtual void Stop() = 0;
};

}  // namespace evenkeel::server
