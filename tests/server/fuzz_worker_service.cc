// Whatever arrives at a worker's control plane: any bytes as the request of any of its calls, over gRPC's own
// channel within the process. The worker answers, and goes on. The first byte chooses the call; the second
// the session, real or not, of those that name one; the rest is the request.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "proto/service.grpc.pb.h"
#include "server/worker_service.h"
#include "tests/server/fake_stream.h"

namespace evenkeel {
namespace {

constexpr const char* kCalls[] = {"Describe",     "OpenSession", "CloseSession",
                                  "DescribeStep", "RequestPart", "ReportWait"};

// A data plane that forgets what it is given.
class Discard : public transport::Source {
 public:
  transport::Info info() const override { return {.name = "fake", .detail = "nowhere"}; }
  std::string address() const override { return ""; }
  absl::Status Connect(transport::SessionId, const std::string&, const transport::Secret&) override {
    return absl::OkStatus();
  }
  void Send(transport::SessionId, transport::RequestId, std::span<const std::byte>, const Digest&,
            absl::Duration, transport::Done done) override {
    done(absl::OkStatus());
  }
  void Disconnect(transport::SessionId) override {}
};

// A worker of forty samples. It lives as long as the process.
struct Worker {
  Worker() {
    grpc::ServerBuilder builder;
    builder.RegisterService(service.service());
    server = builder.BuildAndStart();
    stub = std::make_unique<grpc::GenericStub>(server->InProcessChannel({}));
    worker = pb::Worker::NewStub(server->InProcessChannel({}));
    Open();
  }

  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  }

  // Others may close it.
  void Open() {
    pb::OpenSessionRequest request;
    request.set_stream_version(kStreamVersion);
    request.set_transport("fake");
    request.set_secret(std::string(16, 's'));
    grpc::ClientContext context;
    SetDeadline(context);
    pb::OpenSessionReply reply;
    if (!worker->OpenSession(&context, request, &reply).ok()) std::abort();
    session = reply.session_id();
  }

  // A client of the call, which reads until its end and ignores what it reads.
  void Call(const std::string& name, const std::string& request) {
    grpc::ClientContext context;
    SetDeadline(context);
    grpc::CompletionQueue queue;
    auto call = stub->PrepareCall(&context, "/evenkeel.pb.Worker/" + name, &queue);
    const grpc::Slice slice(request);
    auto wait = [&] {
      void* tag = nullptr;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    call->StartCall(nullptr);
    wait();
    call->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    wait();
    grpc::ByteBuffer reply;
    do {
      call->Read(&reply, nullptr);
    } while (wait());
    grpc::Status status;
    call->Finish(&status, nullptr);
    wait();
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) std::abort();
  }

  Metrics metrics;
  std::unique_ptr<Stream> stream = MakeFakeStream(FakeJob(2, 8), MixedSamples(40));
  Discard source;
  PartBuilder builder{*stream, &metrics};
  StepPlanner planner{[this](uint64_t step) { return PlanStep(*stream, step); }, StepPlanner::Options(),
                      &metrics};
  PartPool pool{PartPool::Options(), &metrics};
  SessionTable sessions{{.idle = absl::Seconds(1)}};  // so that opened ones do not gather
  WorkerService service{{.stream = *stream,
                         .planner = planner,
                         .builder = builder,
                         .pool = pool,
                         .sessions = sessions,
                         .metrics = metrics,
                         .sources = {&source}}};
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::GenericStub> stub;
  std::unique_ptr<pb::Worker::Stub> worker;
  uint64_t session = 0;
};

// A session's number as the first field of a message, in which the last one counts.
std::string Field1(uint64_t value) {
  std::string field(1, '\x08');
  for (; value >= 128; value >>= 7) field.push_back(static_cast<char>((value & 127) | 128));
  field.push_back(static_cast<char>(value));
  return field;
}

}  // namespace
}  // namespace evenkeel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace evenkeel;  // NOLINT
  static auto* const worker = new Worker();
  if (size < 2) return 0;
  const std::string name = kCalls[data[0] % std::size(kCalls)];
  std::string request(reinterpret_cast<const char*>(data + 2), size - 2);
  const bool names_session = name != "Describe" && name != "OpenSession";
  if (names_session && data[1] % 4 != 0) request += Field1(worker->session);
  worker->Call(name, request);
  worker->sessions.Sweep();
  pb::ReportWaitRequest alive;
  alive.set_session_id(worker->session);
  grpc::ClientContext context;
  Worker::SetDeadline(context);
  pb::ReportWaitReply reply;
  const grpc::Status status = worker->worker->ReportWait(&context, alive, &reply);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    worker->Open();
  } else if (!status.ok()) {
    std::abort();
  }
  return 0;
}
