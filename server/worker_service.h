// The control plane of a worker: proto/service.proto over gRPC. It only translates calls; the planner, the
// builder, the pool and the session table do the work.
//
// Example:
//     WorkerService service({.stream = stream, .planner = planner, .builder = parts, .pool = pool,
//                            .sessions = sessions, .metrics = metrics, .sources = sources});
//     builder.RegisterService(service.service());
//     service.SetDraining();          // new sessions and parts are refused from now on
//     service.WaitForCalls(timeout);  // until those accepted have ended
//
// Ownership: everything in Uses must outlive the service; the gRPC server and the transports must end before
// it. Thread safety: all members may be called from many threads. gRPC is confined to the .cc files.
#pragma once

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "server/part_pool.h"
#include "server/session_table.h"
#include "server/step_planner.h"
#include "stream/part_builder.h"
#include "stream/stream.h"
#include "telemetry/metrics.h"
#include "transport/transport.h"

namespace grpc {
class Service;
}

namespace evenkeel::server {

class WorkerService {
 public:
  struct Uses {
    const stream::Stream& stream;
    StepPlanner& planner;
    const stream::PartBuilder& builder;
    PartPool& pool;
    SessionTable& sessions;
    telemetry::Metrics& metrics;
    std::vector<transport::Source*> sources;  // in order of preference
    uint64_t max_part_bytes = 512ull << 20;   // of the transports
    absl::Duration send_timeout = absl::Seconds(60);
  };

  explicit WorkerService(Uses uses);
  ~WorkerService();

  grpc::Service* service();
  void SetDraining();
  // Returns false if calls for parts are still open after `timeout`.
  bool WaitForCalls(absl::Duration timeout);
  // Call it regularly: it reports progress to consumers whose parts are being sent.
  void Tick();
  size_t open_calls() const;

 private:
  class Rpcs;
  const std::unique_ptr<Rpcs> rpcs_;
};

}  // namespace evenkeel::server
