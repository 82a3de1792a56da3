#include "transport/factory.h"
namespace evenkeel::transport {
absl::StatusOr<std::unique_ptr<Sink>> MakeGrpcSink(const Options&,
                                                   std::shared_ptr<grpc::ChannelCredentials>) {
  return absl::UnimplementedError("soon");
}
}  // namespace evenkeel::transport
