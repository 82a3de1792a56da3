// The control plane over a real in-process gRPC channel, with a data plane in memory.
#include "server/worker_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/annotated_mutex.h"
#include "core/failure.h"
#include "proto/service.grpc.pb.h"
#include "server/part_metrics.h"
#include "tests/server/fake_source.h"
#include "tests/stream/fake_stream.h"

namespace evenkeel::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Fixture {
  // Changes parts of the stream before any thread sees it.
  using Prepare = std::function<void(stream::Stream& stream)>;

  explicit Fixture(std::vector<stream::FakeSample> samples = stream::MixedSamples(40),
                   PartPool::Options pool_options = {}, const Prepare& prepare = nullptr)
      : stream(MakeStream(std::move(samples), prepare)),
        builder(*stream, &part_metrics),
        planner(
            std::make_unique<StepPlanner>([this](uint64_t step) { return stream::PlanStep(*stream, step); },
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

  static std::unique_ptr<stream::Stream> MakeStream(std::vector<stream::FakeSample> samples,
                                                    const Prepare& prepare) {
    std::unique_ptr<stream::Stream> stream =
        stream::MakeFakeStream(stream::FakeJob(2, 8), std::move(samples));
    if (prepare != nullptr) prepare(*stream);
    return stream;
  }
  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  }

  pb::OpenSessionRequest GoodRequest() const {
    pb::OpenSessionRequest request;
    request.set_stream_version(kStreamVersion);
    request.set_part_format(kPartFormatVersion);
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
    request.set_role(part.role());
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

  telemetry::Metrics metrics;
  std::unique_ptr<stream::Stream> stream;
  FakeTransport source;
  PartMetrics part_metrics{&metrics};
  stream::PartBuilder builder;
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
  request.clear_part_format();  // a release that does not say
  status = f.Open(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(),
              HasSubstr(absl::StrCat("part format: the consumer has 0, this worker ", kPartFormatVersion)));
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

// Two replicas of three stages; stage s of replica r is global rank 2 * s + r.
TEST(WorkerService, MembersReceiveWhatTheirStageNeeds) {
  Fixture f(stream::MixedSamples(40), {}, [](stream::Stream& stream) {
    for (PhaseSpec& phase : stream.job.phases) {
      phase.mesh = {.sizes = {1, 1, 2, 3}, .ranks = {0, 1, 2, 3, 4, 5}};
    }
  });
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  uint64_t id = 0, whole_bytes = 0;
  std::set<std::string> whole_parts;
  std::map<uint32_t, uint64_t> bytes_of;
  for (uint32_t rank = 0; rank < 6; ++rank) {
    pb::DescribeStepReply step;
    ASSERT_TRUE(f.Describe(3, rank, step).ok());
    EXPECT_EQ(step.routes_size(), rank / 2 == 1 ? 0 : 2) << rank;
    EXPECT_EQ(step.loads(0).after_spread().has_own(), true);
    for (const pb::PartDescription& part : step.parts()) {
      EXPECT_EQ(part.phase_rank(), rank % 2);
      EXPECT_EQ(part.role(), rank / 2 + 1);
      grpc::Status status;
      const std::vector<pb::PartEvent> events = f.Ask(f.PartRequest(++id, 3, part), &status);
      ASSERT_TRUE(status.ok() && events.back().has_sent()) << status.error_message();
      const auto [bytes, hash] = f.source.Sent(id);
      EXPECT_EQ(bytes.size(), part.bytes());
      EXPECT_EQ(hash, DigestOf(bytes));
      const absl::StatusOr<PartView> view = ReadPart(bytes);
      ASSERT_TRUE(view.ok()) << view.status();
      const bool is_llm = part.phase() == "llm";
      EXPECT_TRUE(is_llm || rank / 2 != 1) << "middle stages get no items";
      EXPECT_EQ(view->tensor("input_ids") != nullptr, is_llm && rank / 2 == 0);
      EXPECT_EQ(view->tensor("labels") != nullptr, is_llm && rank / 2 == 2);
      EXPECT_EQ(view->tensor("cu_seqlens") != nullptr, is_llm);
      EXPECT_EQ(view->tensor("item_valid") != nullptr, !is_llm);
      EXPECT_TRUE(rank / 2 == 0 || view->tensor("pixel_values") == nullptr);
      bytes_of[rank / 2] += part.bytes();
    }
    grpc::ClientContext context;
    Fixture::SetDeadline(context);
    pb::DescribeStepRequest request;
    request.set_session_id(f.session.session_id());
    request.set_step(3);
    request.set_rank(rank);
    request.set_whole(true);
    ASSERT_TRUE(f.stub->DescribeStep(&context, request, &step).ok());
    if (rank >= 2) continue;
    for (const pb::PartDescription& part : step.parts()) {
      whole_bytes += part.bytes();
      whole_parts.insert(
          absl::StrCat(part.phase(), part.phase_rank(), " ", part.microbatch(), " ", part.piece()));
    }
    EXPECT_EQ(step.parts(0).role(), 0);
  }
  EXPECT_LE(bytes_of[0], whole_bytes);
  EXPECT_LT(bytes_of[1], bytes_of[2]);
  EXPECT_EQ(f.pool.stats().parts_made, whole_parts.size()) << "each part is made once for all stages";
}

TEST(WorkerService, RefusesARoleThatReceivesNothingOfThePhase) {
  Fixture f;
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  pb::DescribeStepReply step;
  ASSERT_TRUE(f.Describe(0, 0, step).ok());
  for (const uint32_t role : {2u, 4u}) {
    pb::RequestPartRequest request = f.PartRequest(1, 0, step.parts(step.parts_size() - 1));
    request.set_role(role);
    grpc::Status status;
    f.Ask(request, &status);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << role;
  }
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
  Fixture f({{.text = "text", .items = {{.bytes = "T"}}}});
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  pb::DescribeStepReply step;
  ASSERT_TRUE(f.Describe(0, 0, step).ok());
  ASSERT_EQ(step.parts(1).phase(), "vision");
  grpc::Status status;
  const std::vector<pb::PartEvent> events = f.Ask(f.PartRequest(1, 0, step.parts(1)), &status);
  ASSERT_TRUE(events.back().has_failed());
  EXPECT_EQ(events.back().failed().exclude(), "a/shard-0.tar/key-0");
  EXPECT_EQ(events.back().failed().kind(), pb::FAILURE_ATTEMPT);
}

// Storage that fails in a way, or returns other bytes. May be told while it is read.
class FaultyStorage : public dataset::ByteSource {
 public:
  explicit FaultyStorage(std::unique_ptr<dataset::ByteSource> sound) : sound_(std::move(sound)) {}
  absl::StatusOr<uint64_t> Size(const std::string& path) override { return sound_->Size(path); }
  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    MutexLock lock(mutex_);
    if (!fails_.ok()) return fails_;
    const absl::Status read = sound_->ReadAt(path, offset, out);
    if (flips_ && !out.empty()) out[0] ^= std::byte{1};
    return read;
  }
  // OK, without `flips`: it is sound.
  void Set(absl::Status fails, bool flips = false) {
    MutexLock lock(mutex_);
    fails_ = std::move(fails);
    flips_ = flips;
  }

 private:
  const std::unique_ptr<dataset::ByteSource> sound_;
  Mutex mutex_;
  absl::Status fails_ ABSL_GUARDED_BY(mutex_);
  bool flips_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST(WorkerService, StorageThatFailsIsNotBlamedOnTheData) {
  FaultyStorage* storage = nullptr;
  Fixture f({{.text = "text", .items = {{.bytes = "good"}}}}, {}, [&](stream::Stream& stream) {
    auto faulty = std::make_unique<FaultyStorage>(std::move(stream.source));
    storage = faulty.get();
    stream.source = std::move(faulty);
  });
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  pb::DescribeStepReply step;
  ASSERT_TRUE(f.Describe(0, 0, step).ok());
  ASSERT_GE(step.parts_size(), 2);
  uint64_t id = 0;
  for (const absl::Status& fails :
       {absl::NotFoundError("gone"), absl::PermissionDeniedError("gone"), absl::UnavailableError("gone"),
        absl::InvalidArgumentError("gone"), absl::OutOfRangeError("gone")}) {
    storage->Set(fails);
    for (const pb::PartDescription& part : step.parts()) {
      grpc::Status status;
      const std::vector<pb::PartEvent> events = f.Ask(f.PartRequest(++id, 0, part), &status);
      ASSERT_TRUE(events.back().has_failed()) << fails << " " << part.phase();
      EXPECT_EQ(events.back().failed().kind(), pb::FAILURE_MACHINE) << fails << " " << part.phase();
      EXPECT_EQ(events.back().failed().exclude(), "");
      EXPECT_THAT(events.back().failed().message(),
                  AllOf(HasSubstr("gone"), HasSubstr("a/shard-0.tar/key-0")));
    }
  }
  storage->Set(absl::OkStatus(), /*flips=*/true);
  for (const pb::PartDescription& part : step.parts()) {
    grpc::Status status;
    const std::vector<pb::PartEvent> events = f.Ask(f.PartRequest(++id, 0, part), &status);
    ASSERT_TRUE(events.back().has_failed()) << part.phase();
    EXPECT_EQ(events.back().failed().kind(), pb::FAILURE_DATA) << part.phase();
    EXPECT_EQ(events.back().failed().exclude(), "a/shard-0.tar/key-0");
  }
  storage->Set(absl::OkStatus());
  grpc::Status status;
  EXPECT_TRUE(f.Ask(f.PartRequest(++id, 0, step.parts(1)), &status).back().has_sent());
}

pb::FailureKind KindOfCall(const grpc::Status& status) {
  pb::FailureDetail detail;
  EXPECT_TRUE(detail.ParseFromString(status.error_details()));
  return detail.kind();
}

TEST(WorkerService, AStepThatCannotBePlannedYetIsToBeAskedAgain) {
  class FailingSampler : public dataset::Sampler {
   public:
    absl::StatusOr<StepSamples> Samples(uint64_t) const override {
      MutexLock lock(mutex_);
      return status_;
    }
    void Set(absl::Status status) {
      MutexLock lock(mutex_);
      status_ = std::move(status);
    }

   private:
    mutable Mutex mutex_;
    absl::Status status_ ABSL_GUARDED_BY(mutex_);
  };
  FailingSampler* sampler = nullptr;
  Fixture f(stream::MixedSamples(40), {}, [&](stream::Stream& stream) {
    auto failing = std::make_unique<FailingSampler>();
    sampler = failing.get();
    stream.sampler = std::move(failing);
  });
  ASSERT_TRUE(f.Open(f.GoodRequest()).ok());
  pb::DescribeStepReply step;
  pb::PartDescription llm;
  llm.set_phase("llm");
  grpc::Status status;

  sampler->Set(WithKind(absl::UnavailableError("12 %"), FailureKind::kNotYet));
  EXPECT_EQ(KindOfCall(f.Describe(0, 0, step)), pb::FAILURE_NOT_YET);
  const std::vector<pb::PartEvent> later = f.Ask(f.PartRequest(1, 0, llm), &status);
  ASSERT_EQ(later.size(), 1);
  EXPECT_THAT(later[0].refused().reason(), HasSubstr("12 %"));

  sampler->Set(WithKind(absl::NotFoundError("index: No such file"), FailureKind::kMachine));
  status = f.Describe(0, 0, step);
  EXPECT_EQ(KindOfCall(status), pb::FAILURE_MACHINE);
  EXPECT_NE(status.error_code(), grpc::StatusCode::NOT_FOUND) << "the session is in order";
  EXPECT_EQ(f.Ask(f.PartRequest(2, 0, llm), &status).back().failed().kind(), pb::FAILURE_MACHINE);

  sampler->Set(absl::OutOfRangeError("too far"));
  EXPECT_EQ(KindOfCall(f.Describe(0, 0, step)), pb::FAILURE_ATTEMPT);
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
  Fixture f(stream::MixedSamples(40), {.budget_bytes = 30000, .kept_bytes = 0});
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
  Fixture f(stream::MixedSamples(40), {.num_threads = 1, .fault_unit_delay = absl::Milliseconds(20)});
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
}  // namespace evenkeel::server
