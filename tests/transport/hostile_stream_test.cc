// A worker that sends on Deliver what it should not: the consumer's session ends, and nothing else happens.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "proto/service.grpc.pb.h"
#include "tests/transport/peers.h"
#include "transport/credentials.h"
#include "transport/factory.h"

namespace evenkeel::transport {
namespace {

using Write = std::function<void(grpc::ServerWriter<pb::Chunk>&)>;

class Hostile final : public pb::DataPlane::Service {
 public:
  explicit Hostile(Write write) : write_(std::move(write)) {}

 private:
  grpc::Status Deliver(grpc::ServerContext* context, const pb::DeliverRequest*,
                       grpc::ServerWriter<pb::Chunk>* writer) override {
    writer->SendInitialMetadata();
    write_(*writer);
    while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(10));
    return grpc::Status::OK;
  }
  const Write write_;
};

// What the request of 1000 bytes ends with where a worker writes this.
absl::Status Receive(const Write& write) {
  Hostile service(write);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", MakeServerCredentials(nullptr), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::unique_ptr<Sink> sink = *MakeGrpcSink(OptionsFor(Backend::kGrpc), MakeChannelCredentials(nullptr));
  std::vector<std::byte> buffer(1000, std::byte{0x5a}), untouched = buffer;
  Outcome arrived;
  EXPECT_TRUE(sink->Connect(1, absl::StrCat("127.0.0.1:", port), "", SecretOf(1)).ok());
  sink->Expect(1, 1, buffer, arrived.callback());
  absl::Status status = arrived.Wait();
  sink.reset();
  EXPECT_TRUE(buffer == untouched);
  return status;
}

TEST(HostileStream, WithAMessageBeyondAChunkEndsTheSession) {
  absl::Status status = Receive([](auto& writer) {
    pb::Chunk chunk;
    chunk.set_request_id(1);
    chunk.set_length(1000);
    chunk.set_data(std::string(2 * kChunkBytes, 'x'));
    writer.Write(chunk);
  });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
}

TEST(HostileStream, WithWhatIsNoChunkEndsTheSession) {
  absl::Status status = Receive([](auto& writer) {
    pb::Chunk chunk;
    chunk.set_request_id(1);
    chunk.set_length(1000);
    chunk.set_hash("too short");
    chunk.set_data(std::string(1000, 'x'));
    writer.Write(chunk);
  });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("not a chunk"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace evenkeel::transport
