// Makes the transports. Does not choose between them: who calls knows what its peer speaks.
//
//   worker                                               consumer
//   source = MakeUcxSource({})                           sink = MakeUcxSink({})
//   grpc   = MakeGrpcSource({.name = "grpc"})            sink = MakeGrpcSink({.name = "grpc"}, credentials)
//   builder.RegisterService(grpc->service())
//
// Errors of all: FailedPrecondition: require_rdma cannot be met, there is no RDMA and the network is not
// trusted, or shared memory was asked for and cannot work here (says why and what to do); Unavailable: the
// library found no usable device.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace grpc {
class ChannelCredentials;
class Service;
}  // namespace grpc

namespace evenkeel::transport {

absl::StatusOr<std::unique_ptr<Source>> MakeUcxSource(const Options& options);
absl::StatusOr<std::unique_ptr<Sink>> MakeUcxSink(const Options& options);

// Sends through the control plane's own server: serves DataPlane.Deliver.
class GrpcSource : public Source {
 public:
  // Owned by the source. Register it with the server's builder. Shut the server down, then destroy it, before
  // the source; Stop() first, so that no open stream holds the shutdown up.
  virtual grpc::Service* service() = 0;
  // Ends every session and refuses new ones. Pending sends have been completed with Cancelled when it
  // returns.
  virtual void Stop() = 0;
};

absl::StatusOr<std::unique_ptr<GrpcSource>> MakeGrpcSource(const Options& options);
// One stream per session, on a channel of its own to the `endpoint` given to Connect.
absl::StatusOr<std::unique_ptr<Sink>> MakeGrpcSink(const Options& options,
                                                   std::shared_ptr<grpc::ChannelCredentials> credentials);

}  // namespace evenkeel::transport
