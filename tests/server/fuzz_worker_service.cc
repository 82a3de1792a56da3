// Whatever arrives at a worker's control plane: any bytes as the request of any of its calls, over gRPC's own
// channel within the process. The worker answers, and goes on. The first byte chooses the call; the second
// the session, real or not, of those that name one, and which of two workers gets it: one whose steps have a
// fixed number of samples, or one whose steps are known only once the table of windows reaches them; the rest
// is the request.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "core/failure.h"
#include "dataset/order/sampler.h"
#include "proto/service.grpc.pb.h"
#include "server/part_metrics.h"
#include "server/step_compiler.h"
#include "server/worker_service.h"
#include "tests/fuzz_folder.h"
#include "tests/stream/fake_stream.h"

namespace evenkeel::server {
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

// Its steps take samples up to a budget of tokens, so that far steps need work before they are known.
std::unique_ptr<stream::Stream> StreamOfTokens() {
  Job job = stream::FakeJob(2, 8);
  static const FuzzFolder folder;
  job.index = folder.path();
  auto stream = stream::MakeFakeStream(job, stream::MixedSamples(40));
  stream->job.batch = {.llm_tokens = 200};
  auto sampler = dataset::Sampler::Make(stream->job, *stream->index);
  if (!sampler.ok()) std::abort();
  stream->sampler = *std::move(sampler);
  return stream;
}

// A worker of forty samples. It lives as long as the process.
struct Worker {
  explicit Worker(std::unique_ptr<stream::Stream> served) : stream(std::move(served)) {
    grpc::ServerBuilder builder;
    builder.RegisterService(service.service());
    server = builder.BuildAndStart();
    stub = std::make_unique<grpc::GenericStub>(server->InProcessChannel({}));
    worker = pb::Worker::NewStub(server->InProcessChannel({}));
    Open();
  }

  // As a worker does it.
  absl::StatusOr<stream::StepPlan> Plan(uint64_t step) {
    absl::StatusOr<stream::StepPlan> plan = stream::PlanStep(*stream, step);
    if (KindOf(plan.status()) == FailureKind::kNotYet) {
      if (absl::Status failed = compiler.Want(step); !failed.ok()) return failed;
    }
    return plan;
  }

  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  }

  // Others may close it.
  void Open() {
    pb::OpenSessionRequest request;
    request.set_stream_version(kStreamVersion);
    request.set_part_format(kPartFormatVersion);
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

  telemetry::Metrics metrics;
  const std::unique_ptr<stream::Stream> stream;
  Discard source;
  PartMetrics part_metrics{&metrics};
  stream::PartBuilder builder{*stream, &part_metrics};
  StepCompiler compiler{[this](uint64_t step) { return stream->sampler->Extend(step); }};
  StepPlanner planner{[this](uint64_t step) { return Plan(step); }, StepPlanner::Options(), &metrics};
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
}  // namespace evenkeel::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace evenkeel;          // NOLINT
  using namespace evenkeel::server;  // NOLINT
  static auto* const of_samples =
      new Worker(stream::MakeFakeStream(stream::FakeJob(2, 8), stream::MixedSamples(40)));
  static auto* const of_tokens = new Worker(StreamOfTokens());
  if (size < 2) return 0;
  Worker* const worker = data[1] % 8 < 4 ? of_samples : of_tokens;
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
