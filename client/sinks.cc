#include "client/sinks.h"

#include <grpcpp/security/credentials.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "transport/credentials.h"
#include "transport/factory.h"

namespace evenkeel {
namespace {

absl::StatusOr<std::unique_ptr<transport::Sink>> MakeNamed(const ConsumerOptions& options,
                                                           const std::string& name,
                                                           const std::string& certified_name) {
  transport::Options made{.name = name,
                          .require_rdma = options.require_rdma,
                          .shared_memory = options.shared_memory,
                          .devices = options.devices,
                          // Without certificates nothing may be reached from other machines.
                          .loopback_only = !options.tls.given(),
                          .certified_name = certified_name};
  if (name == "ucx") return transport::MakeUcxSink(made);
  if (name == "grpc") {
    EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials,
                              transport::MakeChannelCredentials(options.tls));
    return transport::MakeGrpcSink(made, std::move(credentials));
  }
  return absl::UnimplementedError(absl::StrCat("transport '", name, "' is not known to this release"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<transport::Sink>> MakeSink(const ConsumerOptions& options,
                                                          const std::vector<std::string>& offered,
                                                          const std::string& certified_name) {
  absl::Status last = absl::FailedPreconditionError(
      absl::StrCat("the workers offer the transports [", absl::StrJoin(offered, ", "), "], asked for is '",
                   options.transport, "'"));
  for (const std::string& name : offered) {
    if (options.transport != "auto" && options.transport != name) continue;
    auto sink = MakeNamed(options, name, certified_name);
    if (sink.ok()) return sink;
    last = AddContext(sink.status(), absl::StrCat("transport ", name));
    // A promise that cannot be kept is no reason to quietly take another transport.
    if (sink.status().code() == absl::StatusCode::kFailedPrecondition) return last;
  }
  return last;
}

}  // namespace evenkeel
