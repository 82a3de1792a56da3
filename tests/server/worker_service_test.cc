// The control plane over a real in-process gRPC channel, with a data plane in memory.
#include "server/worker_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/service.grpc.pb.h"
#include "tests/server/fake_source.h"
#include "tests/server/fake_stream.h"

namespace evenkeel {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Fixture {
  explicit Fixture(std::vector<FakeSample> samples = MixedSamples(40), PartPool::Options pool_options = {})
      : stream(MakeFakeStream(FakeJob(2, 8), std::move(samples))),
        builder(*stream, &metrics),
        planner(std::make_unique<StepPlanner>([this](uint64_t step) { return PlanStep(*stream, step); },
                                              StepPlanner::Options(), &metrics)),
        pool(pool_options, &metrics),
        service({.stream = *stream,
                 .planner = *planner,
                 .builder = builder,
                 .pool = pool,
                 .sessions = sessions,
                 .metrics = metrics,
                 .sources = {&source}}) {
    grpc::ServerBuilder server_builder;
    server_builder.RegisterService(service.service());
    server = server_builder.BuildAndStart();
    stub = pb::Worker::NewStub(server->InProcessChannel({}));
  }
  ~Fixture() {
    server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
    server.reset();
    planner.reset();
    pool.Stop();
  }

  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  }

  pb::OpenSessionRequest GoodRequest() const {
    pb::OpenSessionRequest request;
    request.set_stream_version(kStreamVersion);
    request.set_transport("fake");
    request.set_secret(std::string(16, 's'));
    return request;
  }
  grpc::Status Open(const pb::OpenSessionRequest& request) {
    grpc::ClientContext context;
    SetDeadline(context);
    return stub->OpenSession(&context, request, &session);
  }
  grpc::Status Describe(uint64_t step, uint32_t rank, pb::DescribeStepReply& reply) {
    grpc::ClientContext context;
    SetDeadline(context);
    pb::DescribeStepRequest request;
    request.set_session_id(session.session_id());
    request.set_step(step);
    request.set_rank(rank);
    return stub->DescribeStep(&context, request, &reply);
  }
  pb::RequestPartRequest PartRequest(uint64_t id, uint64_t step, const pb::PartDescription& part) const {
    pb::RequestPartRequest request;
    request.set_session_id(session.session_id());
    request.set_request_id(id);
    request.set_step(step);
    request.set_phase(part.phase());
    request.set_phase_rank(part.phase_rank());
    request.set_microbatch(part.microbatch());
    request.set_piece(part.piece());
    return request;
  }
  std::vector<pb::PartEvent> Ask(const pb::RequestPartRequest& request, grpc::Status* status) {
    grpc::ClientContext context;
    SetDeadline(context);
    auto reader = stub->RequestPart(&context, request);
    std::vector<pb::PartEvent> events;
    pb::PartEvent event;
    while (reader->Read(&event)) events.push_back(event);
    *status = reader->Finish();
    return events;
  }

  Metrics metrics;
  std::unique_ptr<Stream> stream;
  FakeTransport source;
  PartBuilder builder;
  std::unique_ptr<StepPlanner> planner;
  PartPool pool;
  SessionTable sessions{{}};
  WorkerService service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<pb::Worker::Stub> stub;
  pb::OpenSessionReply session;
};

TEST(WorkerService, RefusesCallsWithoutADeadline) {
  Fixture f;
  pb::DescribeReply reply;
  grpc::ClientContext describe, part;
  EXPECT_EQ(f.stub->Describe(&describe, {}, &reply).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  auto reader = f.stub->RequestPart(&part, {});
  pb::PartEvent event;
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(WorkerService, DescribesTheStream) {
  Fixture f;
  pb::DescribeReply reply;
  grpc::ClientContext context;
  Fixture::SetDeadline(context);
  ASSERT_TRUE(f.stub->Describe(&context, {}, &reply).ok());
  EXPECT_EQ(reply.stream_digest(), f.stream->stream_digest.Hex());
  EXPECT_EQ(reply.layout_digest(), f.stream->layout_digest.Hex());
  ASSERT_EQ(reply.phases_size(), 3);
  EXPECT_EQ(reply.phases(0).phase(), "llm");
  EXPECT_THAT(reply.transports(), testing::ElementsAre("fake"));
  EXPECT_FALSE(reply.draining());
}

TEST(WorkerService, RefusesConsumersOfAnotherStreamAndNamesBoth) {
  Fixture f;
  pb::OpenSessionRequest request = f.GoodRequest();
  request.set_stream_digest(std::string(32, 'a'));
  grpc::Status status = f.Open(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("stream digest"), HasSubstr(std::string(32, 'a')),
                                            HasSubstr(f.stream->stream_digest.Hex())));
  request = f.GoodRequest();
  request.set_layout_digest(std::string(32, 'b'));
  EXPECT_THAT(f.Open(request).error_message(), HasSubstr("layout digest"));
  request = f.GoodRequest();
  request.set_stream_version(kStreamVersion + 1);
  status = f.Open(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("stream version"), HasSubstr(absl::StrCat(kStreamVersion + 1))));
  request = f.GoodRequest();
  request.set_transport("pigeon");
  EXPECT_THAT(f.Open(request).error_message(), HasSubstr("pigeon"));
  request = f.GoodRequest();
  request.set_secret("short");
  EXPECT_EQ(f.Open(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(f.source.connected(), 0);
}

TEST(WorkerService, DeliversEveryPartOfAStepAsDescribed) {
  Fixture f;
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  EXPECT_EQ(f.session.address(), "worker's address");
  uint64_t id = 0;
  for (uint32_t rank : {0, 1}) {
    pb::DescribeStepReply step;
    ASSERT_TRUE(f.Describe(3, rank, step).ok());
    EXPECT_EQ(step.num_samples(), 8);
    EXPECT_EQ(step.loads_size(), 3);
    EXPECT_EQ(step.routes_size(), 2);
    ASSERT_GE(step.parts_size(), 2);
    for (const pb::PartDescription& part : step.parts()) {
      grpc::Status status;
      const std::vector<pb::PartEvent> events = f.Ask(f.PartRequest(++id, 3, part), &status);
      ASSERT_TRUE(status.ok()) << status.error_message();
      ASSERT_GE(events.size(), 2);
      EXPECT_TRUE(events.front().has_accepted());
      ASSERT_TRUE(events.back().has_sent());
      EXPECT_EQ(events.back().sent().length(), part.bytes());
      const auto [bytes, hash] = f.source.Sent(id);
      EXPECT_EQ(bytes.size(), part.bytes());
      EXPECT_EQ(hash, DigestOf(bytes));
      EXPECT_EQ(events.back().sent().hash(), std::string(hash.bytes.begin(), hash.bytes.end()));
      const absl::StatusOr<PartView> view = ReadPart(bytes);
      ASSERT_TRUE(view.ok());
      EXPECT_EQ(PhaseName(view->name.phase), part.phase());
    }
  }
  EXPECT_THAT(f.metrics.Text(),
              HasSubstr(absl::StrCat("evenkeel_part_requests_total{outcome=\"sent\"} ", id)));
}

TEST(WorkerService, CallsForAnUnknownSessionOrRankOrPartSaySo) {
  Fixture f;
  pb::DescribeStepReply step;
  EXPECT_EQ(f.Describe(0, 0, step).error_code(), grpc::StatusCode::NOT_FOUND);
  grpc::Status status;
  pb::PartDescription llm;
  llm.set_phase("llm");
  EXPECT_TRUE(f.Ask(f.PartRequest(1, 0, llm), &status).empty());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);

  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  EXPECT_EQ(f.Describe(0, 77, step).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  llm.set_piece(3);
  const std::vector<pb::PartEvent> events = f.Ask(f.PartRequest(1, 0, llm), &status);
  EXPECT_TRUE(status.ok()) << "the session is in order";
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].failed().code(), static_cast<int>(grpc::StatusCode::NOT_FOUND));
  llm.set_phase("sculpture");
  EXPECT_TRUE(f.Ask(f.PartRequest(2, 0, llm), &status).empty());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(WorkerService, AFailedAttemptNamesTheLineForTheExcludeList) {
  Fixture f({{.text = "text", .items = {{.bytes = "U"}}}});
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  pb::DescribeStepReply step;
  ASSERT_TRUE(f.Describe(0, 0, step).ok());
  ASSERT_EQ(step.parts(1).phase(), "vision");
  grpc::Status status;
  const std::vector<pb::PartEvent> events = f.Ask(f.PartRequest(1, 0, step.parts(1)), &status);
  ASSERT_TRUE(events.back().has_failed());
  EXPECT_EQ(events.back().failed().exclude(), "a/shard-0.tar/key-0");
  EXPECT_EQ(events.back().failed().code(), static_cast<int>(grpc::StatusCode::UNAVAILABLE));
}

TEST(WorkerService, APartBeyondTheBudgetIsRefusedWhenItIsPlanned) {
  Fixture f({{.text = "text"}}, {.budget_bytes = 100});
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  pb::DescribeStepReply step;
  const grpc::Status status = f.Describe(0, 0, step);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), AllOf(HasSubstr("100 bytes"), HasSubstr("llm rank 0")));
}

TEST(WorkerService, RefusesAtOnceWhenItsMemoryIsTaken) {
  Fixture f(MixedSamples(40), {.budget_bytes = 100000, .kept_bytes = 0});
  f.source.Hold();
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  std::vector<std::thread> asking;
  std::atomic<int> refused{0}, sent{0};
  for (uint64_t i = 0; i < 40; ++i) {
    pb::PartDescription llm;
    llm.set_phase("llm");
    asking.emplace_back([&f, &refused, &sent, request = f.PartRequest(i + 1, i, llm)] {
      grpc::Status status;
      const std::vector<pb::PartEvent> events = f.Ask(request, &status);
      if (events.back().has_refused()) {
        EXPECT_GT(events.back().refused().retry_after_seconds(), 0);
        if (++refused == 10) f.source.LetGo();
      }
      sent += events.back().has_sent();
    });
  }
  for (std::thread& thread : asking) thread.join();
  EXPECT_EQ(refused + sent, 40);
  EXPECT_GE(refused, 10);
  EXPECT_GT(sent, 0);
}

TEST(WorkerService, CancellingTheCallDropsTheWork) {
  Fixture f(MixedSamples(40), {.num_threads = 1, .fault_unit_delay = absl::Milliseconds(20)});
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  pb::PartDescription llm;
  llm.set_phase("llm");
  for (uint64_t i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    Fixture::SetDeadline(context);
    auto reader = f.stub->RequestPart(&context, f.PartRequest(i + 1, i, llm));
    pb::PartEvent event;
    ASSERT_TRUE(reader->Read(&event));
    EXPECT_TRUE(event.has_accepted());
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_TRUE(f.service.WaitForCalls(absl::Seconds(60)));
  EXPECT_TRUE(f.pool.Drain(absl::Seconds(60)));
  EXPECT_LT(f.pool.stats().parts_made, 20);
}

TEST(WorkerService, ReportsProgressOfAPartThatIsOnTheWire) {
  Fixture f;
  f.source.Hold();
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  pb::PartDescription llm;
  llm.set_phase("llm");
  grpc::ClientContext context;
  Fixture::SetDeadline(context);
  auto reader = f.stub->RequestPart(&context, f.PartRequest(1, 0, llm));
  pb::PartEvent event;
  ASSERT_TRUE(reader->Read(&event));
  while (f.source.num_held() == 0) std::this_thread::yield();
  uint64_t before = 0;
  for (int i = 0; i < 3; ++i) {
    f.service.Tick();
    do {
      ASSERT_TRUE(reader->Read(&event));
    } while (event.progress().stage() != "sending");
    EXPECT_GT(event.progress().done(), before);
    before = event.progress().done();
  }
  f.source.LetGo();
  while (reader->Read(&event)) {
  }
  EXPECT_TRUE(event.has_sent());
  EXPECT_TRUE(reader->Finish().ok());
}

TEST(WorkerService, EndsTheSessionWhosePeerIsGone) {
  Fixture f;
  f.source.FailWith(absl::UnavailableError("connection reset"));
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  pb::PartDescription llm;
  llm.set_phase("llm");
  grpc::Status status;
  const std::vector<pb::PartEvent> events = f.Ask(f.PartRequest(1, 0, llm), &status);
  EXPECT_EQ(events.back().failed().code(), static_cast<int>(grpc::StatusCode::UNAVAILABLE));
  pb::DescribeStepReply step;
  EXPECT_EQ(f.Describe(0, 0, step).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(f.sessions.Sweep(), 1);
}

TEST(WorkerService, FinishesAcceptedPartsAndRefusesOthersWhileItDrains) {
  Fixture f;
  f.source.Hold();
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  pb::PartDescription llm;
  llm.set_phase("llm");
  grpc::ClientContext context;
  Fixture::SetDeadline(context);
  auto accepted = f.stub->RequestPart(&context, f.PartRequest(1, 0, llm));
  pb::PartEvent event;
  ASSERT_TRUE(accepted->Read(&event));
  f.service.SetDraining();
  grpc::Status status;
  EXPECT_TRUE(f.Ask(f.PartRequest(2, 1, llm), &status).back().has_refused());
  EXPECT_EQ(f.Open(f.GoodRequest()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(f.service.WaitForCalls(absl::Milliseconds(1)));
  while (f.source.num_held() == 0) std::this_thread::yield();
  f.source.LetGo();
  while (accepted->Read(&event)) {
  }
  EXPECT_TRUE(event.has_sent());
  EXPECT_TRUE(f.service.WaitForCalls(absl::Seconds(60)));
}

TEST(WorkerService, CountsWhatConsumersWaitedAndAskedTwice) {
  Fixture f;
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  pb::PartDescription llm;
  llm.set_phase("llm");
  grpc::Status status;
  for (double total : {1.5, 1.5, 4.0}) {
    pb::RequestPartRequest request = f.PartRequest(7, 0, llm);
    request.set_consumer_wait_seconds(total);
    request.set_attempt(total == 4.0 ? 1 : 0);
    f.Ask(request, &status);
  }
  EXPECT_THAT(f.metrics.Text(), AllOf(HasSubstr("evenkeel_consumer_wait_seconds_total 4\n"),
                                      HasSubstr("evenkeel_duplicate_requests_total 1\n")));
}

TEST(WorkerService, CountsTheWaitOfAConsumerThatHasNothingToAskFor) {
  Fixture f;
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  auto report = [&](uint64_t session, double total) {
    grpc::ClientContext context;
    Fixture::SetDeadline(context);
    pb::ReportWaitRequest request;
    request.set_session_id(session);
    request.set_consumer_wait_seconds(total);
    pb::ReportWaitReply reply;
    return f.stub->ReportWait(&context, request, &reply).error_code();
  };
  // The second overtook the third; what is no number counts for nothing.
  for (double total : {1.0, 5.0, 3.0, -7.0, std::nan(""), 5.5}) {
    EXPECT_EQ(report(f.session.session_id(), total), grpc::StatusCode::OK);
  }
  EXPECT_THAT(f.metrics.Text(), HasSubstr("evenkeel_consumer_wait_seconds_total 5.5\n"));
  EXPECT_EQ(report(f.session.session_id() + 1, 9), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace evenkeel
