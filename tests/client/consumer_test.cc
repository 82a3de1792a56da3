// What a consumer promises where nothing goes wrong: order, bounds, state, lifetime.
#include "client/consumer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "client/receive_memory.h"
#include "tests/client/fake_worker.h"

namespace evenkeel::client {
namespace {

using testing::HasSubstr;

ConsumerOptions OptionsFor(const std::vector<std::string>& endpoints) {
  ConsumerOptions options;
  for (const std::string& endpoint : endpoints)
    options.endpoints += (options.endpoints.empty() ? "" : ",") + endpoint;
  options.prefetch_bytes = 1 << 20;
  options.connect_timeout = absl::Seconds(20);
  options.step_timeout = absl::Seconds(60);
  options.trusted_data_network = true;  // those over UCX have no RDMA
  options.log = [](const std::string&) {};
  return options;
}

void ExpectStep(const StepData& step, uint64_t number, uint32_t rank = 0, uint64_t part_bytes = 4096) {
  EXPECT_EQ(step.step, number);
  EXPECT_EQ(step.loss_tokens, 100 + number);
  std::vector<PartName> names = FakeParts(number, rank);
  ASSERT_EQ(step.parts.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(step.parts[i].name, names[i]);
    std::vector<std::byte> expected = FakePart(names[i], part_bytes);
    absl::StatusOr<PartView> view = ReadPart(expected);
    ASSERT_TRUE(view.ok());
    EXPECT_TRUE(std::ranges::equal(step.parts[i].view.tensors[0].bytes(), view->tensors[0].bytes()));
  }
}

class ConsumerOverTransport : public testing::TestWithParam<std::string> {};

TEST_P(ConsumerOverTransport, DeliversEveryStepInOrderFromManyWorkers) {
  FakeWorkerOptions made{.transport = GetParam()};
  FakeWorker a(made), b(made), c(made);
  auto consumer = Consumer::Connect(OptionsFor({a.endpoint(), b.endpoint(), c.endpoint()}));
  ASSERT_TRUE(consumer.ok()) << consumer.status();
  for (uint64_t i = 0; i < 30; ++i) {
    auto step = (*consumer)->Next();
    ASSERT_TRUE(step.ok()) << step.status();
    ExpectStep(**step, i);
  }
  EXPECT_GT(a.requests(), 0);
  EXPECT_GT(b.requests(), 0);
  EXPECT_GT(c.requests(), 0);
  ConsumerStats stats = (*consumer)->stats();
  EXPECT_EQ(stats.steps, 30);
  EXPECT_EQ(stats.parts, 90);
  EXPECT_EQ(stats.duplicate_requests, 0);
  EXPECT_EQ(stats.replaced_workers, 0);
  EXPECT_THAT(stats.transport, HasSubstr(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Transports, ConsumerOverTransport, testing::Values("grpc", "ucx", "memory"));

// The number of mappings of this process that are parts of a worker.
int MappedParts() {
  int mapped = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) mapped += absl::StrContains(line, "memfd:evenkeel-part");
  return mapped;
}

TEST(Consumer, TakesTheWorkersPagesAndGivesThemBack) {
  constexpr uint64_t kPartBytes = 300'000;
  FakeWorker worker({.transport = "memory", .part_bytes = kPartBytes});
  ConsumerOptions options = OptionsFor({worker.endpoint()});
  options.prefetch_bytes = 8 << 20;
  options.num_steps = 20;
  auto consumer = Consumer::Connect(options);
  ASSERT_TRUE(consumer.ok()) << consumer.status();
  std::shared_ptr<const StepData> kept;
  for (uint64_t i = 0; i < 20; ++i) {
    auto step = (*consumer)->Next();
    ASSERT_TRUE(step.ok()) << step.status();
    ExpectStep(**step, i, 0, kPartBytes);
    EXPECT_GE(MappedParts(), 3) << "the parts were copied";
    if (i == 3) kept = *step;
    if (i > 3) ExpectStep(*kept, 3, 0, kPartBytes);
  }
  EXPECT_EQ(MappedParts(), 3) << "of the step that is kept";
  consumer->reset();
  ExpectStep(*kept, 3, 0, kPartBytes);
  kept.reset();
  EXPECT_EQ(MappedParts(), 0);
}

TEST(Consumer, OrderOfArrivalNeverChangesTheOrderOfParts) {
  // Every request takes its own time, so that parts and steps arrive in every order.
  FakeWorkerOptions made;
  made.behave = [](const PartName& name, uint32_t) {
    uint64_t mixed =
        (name.step * 2654435761u + name.microbatch * 40503u + uint64_t{name.phase.number()} * 977u) >> 7;
    return Behaviour{.kind = Behaviour::Kind::kSlow, .duration = absl::Milliseconds(mixed % 40)};
  };
  FakeWorker a(made), b(made);
  ConsumerOptions options = OptionsFor({a.endpoint(), b.endpoint()});
  options.prefetch_steps = 6;
  auto consumer = Consumer::Connect(options);
  ASSERT_TRUE(consumer.ok()) << consumer.status();
  for (uint64_t i = 0; i < 25; ++i) {
    auto step = (*consumer)->Next();
    ASSERT_TRUE(step.ok()) << step.status();
    ExpectStep(**step, i);
  }
}

TEST(Consumer, DigestIsThatOfThePartsInOrder) {
  FakeWorker worker;
  auto consumer = Consumer::Connect(OptionsFor({worker.endpoint()}));
  ASSERT_TRUE(consumer.ok()) << consumer.status();
  auto step = (*consumer)->Next();
  ASSERT_TRUE(step.ok()) << step.status();
  Digester expected;
  for (const PartName& name : FakeParts(0, 0)) {
    std::vector<std::byte> part = FakePart(name, 4096);
    DigestPart(*ReadPart(part), expected);
  }
  EXPECT_EQ(DigestStep(**step), expected.Finish());
}

TEST(Consumer, StopsAfterItsStepsAndSeeksBack) {
  FakeWorker worker;
  ConsumerOptions options = OptionsFor({worker.endpoint()});
  options.first_step = 5;
  options.num_steps = 2;
  auto consumer = Consumer::Connect(options);
  ASSERT_TRUE(consumer.ok()) << consumer.status();
  EXPECT_EQ((*consumer)->state().next_step, 5);
  ExpectStep(**(*consumer)->Next(), 5);
  ExpectStep(**(*consumer)->Next(), 6);
  EXPECT_EQ((*consumer)->Next().status().code(), absl::StatusCode::kOutOfRange);
  ASSERT_TRUE((*consumer)->Seek(5).ok());
  EXPECT_EQ((*consumer)->state().next_step, 5);
  ExpectStep(**(*consumer)->Next(), 5);
  EXPECT_EQ((*consumer)->state().stream_digest, FakeWorkerOptions().stream_digest);
  EXPECT_EQ((*consumer)->state().layout_digest, FakeWorkerOptions().layout_digest);
}

TEST(Consumer, StepsOutliveTheirConsumer) {
  FakeWorker worker;
  std::shared_ptr<const StepData> kept;
  {
    auto consumer = Consumer::Connect(OptionsFor({worker.endpoint()}));
    ASSERT_TRUE(consumer.ok()) << consumer.status();
    kept = *(*consumer)->Next();
  }
  ExpectStep(*kept, 0);
}

TEST(Consumer, PrefetchStaysWithinTheBudgetWhileTheTrainerKeepsEverything) {
  FakeWorker worker({.part_bytes = 64 << 10});
  ConsumerOptions options = OptionsFor({worker.endpoint()});
  options.prefetch_bytes = 256 << 10;  // one step and a bit
  options.prefetch_steps = 8;
  auto consumer = Consumer::Connect(options);
  ASSERT_TRUE(consumer.ok()) << consumer.status();
  // All of them are kept: the budget bounds what is prefetched, and the head step always gets through.
  std::vector<std::shared_ptr<const StepData>> kept;
  for (uint64_t i = 0; i < 6; ++i) {
    auto step = (*consumer)->Next();
    ASSERT_TRUE(step.ok()) << step.status();
    kept.push_back(*step);
  }
  for (uint64_t i = 0; i < kept.size(); ++i) ExpectStep(*kept[i], i, 0, 64 << 10);
  // With the trainer's memory full nothing but the head is fetched: 3 parts of the step that is next.
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_LE(worker.requests(), 7 * 3);
}

TEST(Consumer, AStepLargerThanTheBudgetIsAnErrorAtOnce) {
  FakeWorker worker({.part_bytes = 64 << 10});
  ConsumerOptions options = OptionsFor({worker.endpoint()});
  options.prefetch_bytes = 32 << 10;
  auto consumer = Consumer::Connect(options);
  ASSERT_TRUE(consumer.ok()) << consumer.status();
  absl::Status status = (*consumer)->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("prefetch_bytes"));
  EXPECT_EQ(worker.requests(), 0);
}

TEST(Consumer, SaysThatItIsOfNoUseInAForkedChild) {
  FakeWorker worker;
  auto consumer = Consumer::Connect(OptionsFor({worker.endpoint()}));
  ASSERT_TRUE(consumer.ok()) << consumer.status();
  ASSERT_TRUE((*consumer)->Next().ok());
  pid_t child = fork();
  if (child == 0) {
    bool refused = (*consumer)->Next().status().code() == absl::StatusCode::kFailedPrecondition &&
                   (*consumer)->Seek(0).code() == absl::StatusCode::kFailedPrecondition;
    consumer->reset();  // must not wait for threads that are not there
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE((*consumer)->Next().ok()) << "the parent's goes on";
}

TEST(Consumer, RefusesOptionsThatMakeNoSense) {
  auto code = [](ConsumerOptions options) { return Consumer::Connect(options).status().code(); };
  ConsumerOptions fine = OptionsFor({"127.0.0.1:1"});
  for (auto change : std::vector<std::function<void(ConsumerOptions&)>>{
           [](ConsumerOptions& o) { o.endpoints = ""; }, [](ConsumerOptions& o) { o.endpoints = "host"; },
           [](ConsumerOptions& o) { o.transport = "pigeon"; },
           [](ConsumerOptions& o) { o.prefetch_bytes = 0; },
           [](ConsumerOptions& o) { o.prefetch_steps = 4'000'000'000; },
           [](ConsumerOptions& o) { o.step_timeout = absl::ZeroDuration(); },
           [](ConsumerOptions& o) { o.tls.key = "only.pem"; }}) {
    ConsumerOptions options = fine;
    change(options);
    EXPECT_EQ(code(options), absl::StatusCode::kInvalidArgument) << options.endpoints;
  }
}

TEST(Consumer, DoesNotUseUcxOverTcpBecauseAWorkerOffersIt) {
  FakeWorker worker({.transport = "ucx"});
  for (const char* transport : {"auto", "ucx"}) {
    ConsumerOptions options = OptionsFor({worker.endpoint()});
    options.transport = transport;
    options.trusted_data_network = false;
    const absl::Status status = Consumer::Connect(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("trusted_data_network")) << transport;
  }
}

TEST(Consumer, DialsNoOtherMachineWithoutCertificates) {
  ConsumerOptions options = OptionsFor({"192.0.2.1:7000"});
  EXPECT_EQ(Consumer::Connect(options).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(Consumer, CanBeDestroyedWithEverythingInFlight) {
  FakeWorkerOptions made;
  made.behave = [](const PartName& name, uint32_t) {
    auto kinds = {Behaviour::Kind::kSilent, Behaviour::Kind::kSlow, Behaviour::Kind::kNeverDeliver};
    return Behaviour{.kind = kinds.begin()[(name.step + name.microbatch) % kinds.size()],
                     .duration = absl::Milliseconds(30)};
  };
  FakeWorker a(made), b(made);
  for (int i = 0; i < 5; ++i) {
    auto consumer = Consumer::Connect(OptionsFor({a.endpoint(), b.endpoint()}));
    ASSERT_TRUE(consumer.ok()) << consumer.status();
    absl::SleepFor(absl::Milliseconds(15 * i));
  }
}

TEST(Consumer, WaitTellsWhetherNextWouldWait) {
  std::atomic<bool> open = false;
  FakeWorkerOptions made;
  made.behave = [&](const PartName&, uint32_t) {
    return open ? Behaviour()
                : Behaviour{.kind = Behaviour::Kind::kRefuse, .duration = absl::Milliseconds(10)};
  };
  FakeWorker worker(made);
  auto consumer = Consumer::Connect(OptionsFor({worker.endpoint()}));
  ASSERT_TRUE(consumer.ok()) << consumer.status();
  EXPECT_FALSE((*consumer)->Wait(absl::Milliseconds(50)));
  open = true;
  while (!(*consumer)->Wait(absl::Milliseconds(50))) {
  }
  ExpectStep(**(*consumer)->Next(), 0);
}

}  // namespace
}  // namespace evenkeel::client
