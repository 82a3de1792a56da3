// Opens the first transport that both the options and the workers allow.
#include "client/sinks.h"

#include <grpcpp/security/credentials.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/node_sink.h"
#include "core/status.h"
#include "transport/credentials.h"
#include "transport/factory.h"

namespace evenkeel::client {
namespace {

absl::StatusOr<std::unique_ptr<transport::Sink>> MakeNamed(
    const ConsumerOptions& options, const std::shared_ptr<transport::Certificates>& certificates,
    const std::string& name, const std::string& certified_name, const std::vector<std::string>& endpoints) {
  transport::Options made{.name = name,
                          .require_rdma = options.require_rdma,
                          .trusted_network = options.trusted_data_network,
                          .devices = options.devices,
                          .towards = endpoints,
                          // Without certificates other machines must not reach this process.
                          .loopback_only = !options.tls.given(),
                          .certified_name = certified_name};
  if (name == "ucx") return transport::MakeUcxSink(made);
  if (name == "memory") return transport::MakeMemorySink(made);
  if (name == "grpc") {
    return transport::MakeGrpcSink(made, transport::MakeChannelCredentials(certificates));
  }
  return absl::UnimplementedError(absl::StrCat(
      "transport '", name, "' is unknown to this release; run workers and consumers of one release"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<transport::Sink>> MakeSink(
    const ConsumerOptions& options, const std::shared_ptr<transport::Certificates>& certificates,
    const std::vector<std::string>& offered, const std::string& certified_name,
    const std::vector<std::string>& endpoints) {
  absl::Status last = absl::FailedPreconditionError(
      absl::StrCat("the workers offer the transports [", absl::StrJoin(offered, ", "),
                   "], not the requested '", options.transport, "'"));
  std::unique_ptr<transport::Sink> memory;  // for the workers of this machine, in addition to another one
  for (const std::string& name : offered) {
    if (options.transport != "auto" && options.transport != name) continue;
    auto sink = MakeNamed(options, certificates, name, certified_name, endpoints);
    if (!sink.ok()) {
      last = AddContext(sink.status(), absl::StrCat("transport ", name));
      // The user requires a property that another transport lacks, so falling back would break the promise.
      if (options.require_rdma) return last;
    } else if (options.transport == "auto" && name == "memory") {
      memory = *std::move(sink);
    } else if (memory != nullptr) {
      return std::make_unique<NodeSink>(std::move(memory), *std::move(sink));
    } else {
      return sink;
    }
  }
  // Workers that offer nothing else can serve the consumers of their own machine.
  if (memory != nullptr) return memory;
  return last;
}

}  // namespace evenkeel::client
