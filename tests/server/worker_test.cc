// A whole worker over its real transports and its real gRPC server, in this process.
#include "server/worker.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <thread>

#include "proto/service.grpc.pb.h"
#include "tests/stream/fake_stream.h"
#include "transport/factory.h"

namespace evenkeel::server {
namespace {

using testing::HasSubstr;
using testing::Not;

std::unique_ptr<stream::Stream> SmallStream() {
  return stream::MakeFakeStream(stream::FakeJob(2, 8), stream::MixedSamples(40));
}

struct Waiter {
  Mutex mutex;
  CondVar changed;
  std::optional<absl::Status> status ABSL_GUARDED_BY(mutex);

  transport::Done done() {
    return [this](absl::Status result) {
      MutexLock lock(mutex);
      status = std::move(result);
      changed.NotifyAll();
    };
  }
  absl::Status Wait() {
    MutexLock lock(mutex);
    while (!status.has_value()) changed.Wait(mutex);
    return *status;
  }
};

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
}

// A consumer of the plainest kind.
class Client {
 public:
  Client(const std::string& address, const std::string& transport) : address_(address) {
    auto credentials = transport::MakeChannelCredentials(nullptr);
    stub_ =
        pb::Worker::NewStub(grpc::CreateCustomChannel(address, credentials, transport::ClientArguments()));
    transport::Options options{.name = transport, .trusted_network = true, .loopback_only = true};
    auto sink = transport == "ucx"      ? transport::MakeUcxSink(options)
                : transport == "memory" ? transport::MakeMemorySink(options)
                                        : transport::MakeGrpcSink(options, credentials);
    EXPECT_TRUE(sink.ok()) << sink.status();
    sink_ = *std::move(sink);
    pb::OpenSessionRequest request;
    request.set_stream_version(kStreamVersion);
    request.set_part_format(kPartFormatVersion);
    request.set_transport(transport);
    request.set_address(sink_->address());
    transport::Secret secret{};
    secret.fill(7);
    request.set_secret(std::string(secret.begin(), secret.end()));
    grpc::ClientContext context;
    SetDeadline(context);
    const grpc::Status opened = stub_->OpenSession(&context, request, &session_);
    EXPECT_TRUE(opened.ok()) << opened.error_message();
    EXPECT_TRUE(sink_->Connect(session_.session_id(), address, session_.address(), secret).ok());
  }
  ~Client() { sink_->Disconnect(session_.session_id()); }

  pb::DescribeStepReply Describe(uint64_t step, uint32_t rank) {
    grpc::ClientContext context;
    SetDeadline(context);
    pb::DescribeStepRequest request;
    request.set_session_id(session_.session_id());
    request.set_step(step);
    request.set_rank(rank);
    pb::DescribeStepReply reply;
    const grpc::Status status = stub_->DescribeStep(&context, request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return reply;
  }

  // The part's bytes; empty where it was refused.
  std::vector<std::byte> Fetch(uint64_t step, const pb::PartDescription& part) {
    std::vector<std::byte> bytes(part.bytes());
    Waiter received;
    const uint64_t id = ++last_request_;
    sink_->Expect(session_.session_id(), id, bytes, received.done());
    grpc::ClientContext context;
    SetDeadline(context);
    pb::RequestPartRequest request;
    request.set_session_id(session_.session_id());
    request.set_request_id(id);
    request.set_step(step);
    request.set_phase(part.phase());
    request.set_phase_rank(part.phase_rank());
    request.set_microbatch(part.microbatch());
    auto reader = stub_->RequestPart(&context, request);
    pb::PartEvent event;
    while (reader->Read(&event)) {
    }
    EXPECT_TRUE(reader->Finish().ok());
    if (event.has_sent() && received.Wait().ok()) return bytes;
    if (!event.has_sent()) sink_->Cancel(session_.session_id(), id);
    return {};
  }

 private:
  const std::string address_;
  std::unique_ptr<pb::Worker::Stub> stub_;
  std::unique_ptr<transport::Sink> sink_;
  pb::OpenSessionReply session_;
  uint64_t last_request_ = 0;
};

std::string Health(const std::string& address) {
  // grpc.health.v1.HealthCheckResponse { status = 1 } read without its generated code.
  grpc::ClientContext context;
  SetDeadline(context);
  auto channel = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const grpc::Slice nothing("");
  const grpc::ByteBuffer request(&nothing, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  if (!status.ok() || !response.Dump(&slices).ok() || slices.empty() || slices[0].size() < 2)
    return "unknown: " + status.error_message();
  return slices[0].begin()[1] == 1 ? "SERVING" : "NOT_SERVING";
}

class WorkerOver : public testing::TestWithParam<std::string> {};

TEST_P(WorkerOver, DeliversTheSamePartsAsAnyOther) {
  std::vector<std::vector<std::byte>> parts[2];
  for (int number : {0, 1}) {
    auto worker = Worker::Start(
        {.transport = GetParam(), .trusted_data_network = true, .threads = number == 0 ? 1u : 4u},
        SmallStream());
    ASSERT_TRUE(worker.ok()) << worker.status();
    Client client((*worker)->address(), GetParam());
    for (uint64_t step : {0, 5}) {
      const pb::DescribeStepReply described = client.Describe(step, 1);
      for (const pb::PartDescription& part : described.parts())
        parts[number].push_back(client.Fetch(step, part));
    }
  }
  ASSERT_GE(parts[0].size(), 4);
  for (const std::vector<std::byte>& part : parts[0]) EXPECT_TRUE(ReadPart(part).ok());
  EXPECT_EQ(parts[0], parts[1]);
}

TEST_P(WorkerOver, DrainsWithoutLosingAcceptedWork) {
  auto worker = Worker::Start({.transport = GetParam(),
                               .trusted_data_network = true,
                               .threads = 1,
                               .fault_unit_delay = absl::Milliseconds(5)},
                              SmallStream());
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ(Health((*worker)->address()), "SERVING");
  Client client((*worker)->address(), GetParam());
  const pb::DescribeStepReply described = client.Describe(0, 0);
  EXPECT_FALSE(client.Fetch(7, client.Describe(7, 0).parts(0)).empty());
  std::vector<std::byte> bytes;
  std::thread fetch([&] { bytes = client.Fetch(0, described.parts(0)); });
  std::thread drain([&] { EXPECT_TRUE((*worker)->Drain(absl::Seconds(60))); });
  fetch.join();
  drain.join();
  // Accepted before the drain and delivered, or refused: nothing in between.
  if (!bytes.empty()) {
    EXPECT_TRUE(ReadPart(bytes).ok());
  }
  EXPECT_EQ(Health((*worker)->address()), "NOT_SERVING");
  EXPECT_TRUE(client.Fetch(1, described.parts(0)).empty());
  (*worker)->Stop();
}

INSTANTIATE_TEST_SUITE_P(Transports, WorkerOver, testing::Values("ucx", "grpc", "memory"),
                         [](const auto& info) { return info.param; });

TEST(Worker, OffersAllTransportsThatWorkHere) {
  auto worker = Worker::Start({.metrics = "127.0.0.1:0"}, SmallStream());
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_EQ((*worker)->transports(), "memory sealed, grpc http2/tcp");
  EXPECT_THAT((*worker)->metrics_address(), testing::StartsWith("127.0.0.1:"));
  EXPECT_NE((*worker)->metrics_address(), "127.0.0.1:0");
}

TEST(Worker, OffersUcxOverTcpOnlyOnATrustedNetwork) {
  // Without certificates there is loopback alone, so no RDMA on any machine.
  EXPECT_THAT((*Worker::Start({}, SmallStream()))->transports(), Not(HasSubstr("ucx")));
  EXPECT_THAT((*Worker::Start({.trusted_data_network = true}, SmallStream()))->transports(),
              HasSubstr("ucx tcp/lo"));
  const absl::Status refused = Worker::Start({.transport = "ucx"}, SmallStream()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--trusted-data-network"));
}

TEST(Worker, OffersTheNamedTransportAlone) {
  for (const auto& [name, offered] :
       {std::pair{"memory", "memory sealed"}, std::pair{"grpc", "grpc http2/tcp"}}) {
    auto worker = Worker::Start({.transport = name}, SmallStream());
    ASSERT_TRUE(worker.ok()) << worker.status();
    EXPECT_EQ((*worker)->transports(), offered);
  }
}

TEST(Worker, ServesLoopbackAloneWithoutCertificates) {
  EXPECT_EQ(Worker::Start({.listen = "0.0.0.0:0", .transport = "grpc"}, SmallStream()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Worker, DoesNotStartWhereAPartExceedsItsMemory) {
  const absl::Status status =
      Worker::Start({.transport = "grpc", .memory_bytes = 500}, SmallStream()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--memory"));
}

TEST(Worker, DoesNotStartWithoutRdmaWhereItIsRequired) {
  const absl::Status insecure = Worker::Start({.require_rdma = true}, SmallStream()).status();
  EXPECT_EQ(insecure.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(insecure.message()), HasSubstr("certificate")) << "not the hardware's fault";
}

TEST(Worker, RefusesOptionsThatMakeNoSense) {
  EXPECT_EQ(Worker::Start({.transport = "pigeon"}, SmallStream()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Worker::Start({.transport = "grpc", .require_rdma = true}, SmallStream()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Worker::Start({.metrics = "nowhere", .transport = "grpc"}, SmallStream()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Worker, RefusesNumbersThatWouldBecomeOthers) {
  const auto refused = [](const WorkerOptions& options, const char* names) {
    const absl::Status status = Worker::Start(options, SmallStream()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(names));
  };
  refused({.listen = "127.0.0.1:99999"}, "--listen: '127.0.0.1:99999'");
  refused({.listen = "127.0.0.1"}, "--listen");
  refused({.threads = 100'000'000}, "--threads");
  refused({.memory_bytes = static_cast<uint64_t>(-1)}, "--memory");
  refused({.plan_bytes = static_cast<uint64_t>(-1)}, "--plan-memory");
  refused({.steps_ahead = 4'000'000'000}, "--steps-ahead");
  refused({.send_timeout = absl::Milliseconds(10)}, "--send-timeout");
  refused({.send_timeout = absl::InfiniteDuration()}, "--send-timeout");
  refused({.session_idle = absl::Seconds(-5)}, "--session-idle");
  refused({.session_idle = absl::InfiniteDuration()}, "--session-idle");
}

}  // namespace
}  // namespace evenkeel::server
