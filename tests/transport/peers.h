// What every transport test needs: a worker's side, a consumer's side, and outcomes to wait for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"
#include "transport/factory.h"
#include "transport/transport.h"

namespace grpc {
class Server;
}

namespace evenkeel::transport {

// The transports under test.
enum class Backend { kUcx, kGrpc, kMemory };
std::string BackendName(Backend backend);  // "ucx", "grpc", "memory"
Backend BackendFromName(const std::string& name);
// On loopback, with time to connect for a busy machine.
Options OptionsFor(Backend backend);

// A source, with the server that a grpc one needs.
class WorkerSide {
 public:
  static absl::StatusOr<std::unique_ptr<WorkerSide>> Start(Backend backend, const Options& options,
                                                           const std::string& host = "127.0.0.1");
  ~WorkerSide();

  Source& source() { return *source_; }
  const std::string& endpoint() const { return endpoint_; }
  // Destroys the source (and its server) now.
  void Reset();

 private:
  std::unique_ptr<Source> source_;
  std::unique_ptr<grpc::Server> server_;
  std::string endpoint_ = "127.0.0.1:1";
};

absl::StatusOr<std::unique_ptr<Sink>> MakeSink(Backend backend, const Options& options);

// The end of one Send or Expect. May be destroyed before the callback ran; the bytes may not.
class Outcome {
 public:
  Done callback();
  // DeadlineExceeded with a message of its own where nothing came in time.
  absl::Status Wait(absl::Duration timeout = absl::Seconds(60));
  bool done() { return calls() > 0; }
  int calls();

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    int calls ABSL_GUARDED_BY(mutex) = 0;
    absl::Status status ABSL_GUARDED_BY(mutex);
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Bytes that differ between seeds and positions.
std::vector<std::byte> Payload(size_t bytes, uint64_t seed);
Secret SecretOf(uint8_t value);

}  // namespace evenkeel::transport
