// Creates the transports. The caller chooses between them, since it knows what its peer supports.
//
//   worker                                               consumer
//   source = MakeUcxSource({})                           sink = MakeUcxSink({})
//   grpc   = MakeGrpcSource({.name = "grpc"})            sink = MakeGrpcSink({.name = "grpc"}, credentials)
//   builder.RegisterService(grpc->service())
//   memory = MakeMemorySource({.name = "memory"})        sink = MakeMemorySink({.name = "memory"})
//
// Errors of all: FailedPrecondition: require_rdma cannot be met, or there is no RDMA and the network is not
// trusted (the message has the reason and the remedy); Unavailable: the library found no usable device, or
// there are no Unix sockets here.
//
// Thread safety: functions without state; for the transports see transport/transport.h.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "transport/transport.h"

namespace grpc {
class ChannelCredentials;
class Service;
}  // namespace grpc

namespace evenkeel::transport {

// FailedPrecondition if RDMA is required of a transport that is none. `what_it_is`: "grpc runs over TCP".
inline absl::Status RefuseRequiredRdma(const Options& options, const char* what_it_is) {
  if (!options.require_rdma) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("require_rdma is set, but the transport ", what_it_is,
                                                    "; use the transport ucx, or set require_rdma: false"));
}

absl::StatusOr<std::unique_ptr<Source>> MakeUcxSource(const Options& options);
absl::StatusOr<std::unique_ptr<Sink>> MakeUcxSink(const Options& options);

// Sealed memory, handed over between processes of one user on one machine (docs/transport.md).
absl::StatusOr<std::unique_ptr<Source>> MakeMemorySource(const Options& options);
absl::StatusOr<std::unique_ptr<Sink>> MakeMemorySink(const Options& options);

// Sends through the control plane's server, by serving DataPlane.Deliver.
class GrpcSource : public Source {
 public:
  // Owned by the source. Register it with the server's builder. Shut down and destroy the server before the
  // source; call Stop() before that, since an open stream would delay the shutdown.
  virtual grpc::Service* service() = 0;
  // Ends every session and refuses new ones. When it returns, pending sends have completed with Cancelled.
  virtual void Stop() = 0;
};

absl::StatusOr<std::unique_ptr<GrpcSource>> MakeGrpcSource(const Options& options);
// Opens one stream per session, on a channel of its own to the `endpoint` given to Connect.
absl::StatusOr<std::unique_ptr<Sink>> MakeGrpcSink(const Options& options,
                                                   std::shared_ptr<grpc::ChannelCredentials> credentials);

}  // namespace evenkeel::transport
