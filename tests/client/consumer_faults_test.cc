// What a consumer survives, and what it says where it cannot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "absl/time/clock.h"
#include "client/consumer.h"
#include "client/worker_standing.h"
#include "core/failure.h"
#include "core/steady_time.h"
#include "tests/client/fake_worker.h"
#include "tests/usual_phases.h"

namespace evenkeel::client {
namespace {

using Kind = Behaviour::Kind;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Sanitized code on a busy machine takes its time to say that it makes progress.
#ifdef EVENKEEL_SANITIZED
constexpr int kPatience = 5;
#else
constexpr int kPatience = 1;
#endif

ConsumerOptions OptionsFor(const std::vector<std::string>& endpoints) {
  ConsumerOptions options;
  for (const std::string& endpoint : endpoints)
    options.endpoints += (options.endpoints.empty() ? "" : ",") + endpoint;
  options.prefetch_bytes = 1 << 20;
  options.connect_timeout = absl::Seconds(20);
  options.step_timeout = absl::Minutes(3);
  options.progress_timeout = kPatience * absl::Milliseconds(700);
  options.trusted_data_network = true;  // those over UCX have no RDMA
  options.log = [](const std::string&) {};
  return options;
}

// For tests in which requests stand still and a doubt too many changes nothing.
ConsumerOptions ImpatientOptionsFor(const std::vector<std::string>& endpoints) {
  ConsumerOptions options = OptionsFor(endpoints);
  options.progress_timeout = kPatience * absl::Milliseconds(250);
  return options;
}

std::unique_ptr<Consumer> MustConnect(const ConsumerOptions& options) {
  auto consumer = Consumer::Connect(options);
  EXPECT_TRUE(consumer.ok()) << consumer.status();
  return consumer.ok() ? *std::move(consumer) : nullptr;
}

// All steps, compared with what a worker without faults would send.
void ExpectSteps(Consumer& consumer, uint64_t count, uint64_t first = 0) {
  for (uint64_t i = first; i < first + count; ++i) {
    auto step = consumer.Next();
    ASSERT_TRUE(step.ok()) << step.status();
    std::vector<PartName> names = FakeParts(i, 0);
    ASSERT_EQ((*step)->parts.size(), names.size());
    for (size_t p = 0; p < names.size(); ++p) {
      std::vector<std::byte> expected = FakePart(names[p], 4096);
      absl::StatusOr<PartView> view = ReadPart(expected);
      ASSERT_EQ((*step)->parts[p].name, names[p]);
      ASSERT_TRUE(std::ranges::equal((*step)->parts[p].view.tensors[0].bytes(), view->tensors[0].bytes()));
    }
  }
}

// Misbehaves for the first requests of some parts, wherever they are asked: at most `times` per part.
class Faults {
 public:
  Faults(Kind kind, int times, absl::Duration duration = absl::Milliseconds(20))
      : kind_(kind), times_(times), duration_(duration) {}

  Behaviour operator()(const PartName& name, uint32_t) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (name.step % 2 == 1 || seen_[name]++ >= times_) return {};
    ++injected_;
    return {kind_, duration_, 13, "a fault", ""};
  }
  int injected() {
    std::lock_guard<std::mutex> lock(mutex_);
    return injected_;
  }

 private:
  const Kind kind_;
  const int times_;
  const absl::Duration duration_;
  std::mutex mutex_;
  std::map<PartName, int> seen_;
  int injected_ = 0;
};

struct FaultCase {
  Kind kind;
  int times;
  uint64_t steps;
};

class ConsumerSurvives : public testing::TestWithParam<FaultCase> {};

TEST_P(ConsumerSurvives, FaultsOfSingleRequestsWithoutChangingAByte) {
  Faults faults(GetParam().kind, GetParam().times);
  FakeWorkerOptions made;
  made.behave = std::ref(faults);
  FakeWorker a(made), b(made), c(made);
  std::unique_ptr<Consumer> consumer =
      MustConnect(ImpatientOptionsFor({a.endpoint(), b.endpoint(), c.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, GetParam().steps);
  EXPECT_GT(faults.injected(), 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ConsumerSurvives,
                         testing::Values(FaultCase{Kind::kRefuse, 4, 12}, FaultCase{Kind::kDropLater, 3, 12},
                                         FaultCase{Kind::kFail, 1, 12}, FaultCase{Kind::kFail, 2, 6},
                                         FaultCase{Kind::kWrongHash, 2, 8},
                                         FaultCase{Kind::kWrongLength, 1, 8},
                                         FaultCase{Kind::kWrongPart, 2, 8},
                                         FaultCase{Kind::kForgetSession, 1, 8}, FaultCase{Kind::kStuck, 1, 3},
                                         FaultCase{Kind::kSilent, 1, 3},
                                         FaultCase{Kind::kNeverDeliver, 1, 3}));

TEST(ConsumerFaults, OneWorkerThatRefusesEveryRequestOnceStillDelivers) {
  for (Kind kind : {Kind::kRefuse, Kind::kFail, Kind::kWrongHash, Kind::kForgetSession, Kind::kStuck}) {
    Faults faults(kind, 1);
    FakeWorkerOptions made;
    made.behave = std::ref(faults);
    FakeWorker only(made);
    std::unique_ptr<Consumer> consumer = MustConnect(ImpatientOptionsFor({only.endpoint()}));
    ASSERT_NE(consumer, nullptr);
    ExpectSteps(*consumer, 3);
  }
}

TEST(ConsumerFaults, AWorkerThatDiesMidPartIsReplaced) {
  std::atomic<int> requests = 0;
  FakeWorkerOptions dying;
  dying.behave = [&](const PartName&, uint32_t) {
    return Behaviour{++requests > 4 ? Kind::kDieMidPart : Kind::kServe};
  };
  FakeWorker a(dying), b;
  std::unique_ptr<Consumer> consumer = MustConnect(OptionsFor({a.endpoint(), b.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 20);
  EXPECT_GE(consumer->stats().replaced_workers, 1);
  EXPECT_EQ(consumer->stats().duplicate_requests, 0) << "what died is asked again, not twice";
}

TEST(ConsumerFaults, SlownessAloneReplacesNobody) {
  // More than twice the progress timeout, with progress all along.
  FakeWorkerOptions slow;
  slow.behave = [](const PartName&, uint32_t) {
    return Behaviour{Kind::kSlow, kPatience * absl::Milliseconds(1500)};
  };
  FakeWorker a(slow), b(slow);
  std::unique_ptr<Consumer> consumer = MustConnect(OptionsFor({a.endpoint(), b.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 2);
  ConsumerStats stats = consumer->stats();
  EXPECT_EQ(stats.duplicate_requests, 0);
  EXPECT_EQ(stats.replaced_workers, 0);
  EXPECT_EQ(a.max_attempt() + b.max_attempt(), 0);
}

TEST(ConsumerFaults, DuplicatesStayBelowFivePerCentAndTheLoserIsCancelled) {
  // One part in ten is stuck at first, on a worker that otherwise goes on: after 20 requests some are
  // doubled.
  std::mutex mutex;
  std::set<PartName> stuck;
  FakeWorkerOptions made;
  made.behave = [&](const PartName& name, uint32_t) {
    std::lock_guard<std::mutex> lock(mutex);
    bool first = name.step % 3 == 0 && name.phase == kVisionPhase && stuck.insert(name).second;
    return Behaviour{first ? Kind::kStuck : Kind::kSlow, absl::Milliseconds(30)};
  };
  FakeWorker a(made), b(made);
  ConsumerOptions options = OptionsFor({a.endpoint(), b.endpoint()});
  options.progress_timeout = kPatience * absl::Milliseconds(300);
  std::unique_ptr<Consumer> consumer = MustConnect(options);
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 24);
  ConsumerStats stats = consumer->stats();
  EXPECT_LE(stats.duplicate_requests * 20, stats.requests);
  // A stuck request ends only when it is given up. More than eight where the consumer, which fetches ahead, came to
  // the stuck part of step 24, or where a busy machine made it doubt a slow one.
  for (int i = 0; i < 500 && a.cancelled() + b.cancelled() < 8; ++i) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_GE(a.cancelled() + b.cancelled(), 8) << "every stuck copy was given up";
}

// Two of three workers are alive, accept what they are asked, and get nowhere.
class TwoGreyWorkersOfThree : public testing::TestWithParam<Kind> {
 protected:
  void Connect(absl::Duration timeout) {
    FakeWorkerOptions made;
    made.behave = [this](const PartName&, uint32_t) {
      if (grey_) return Behaviour{GetParam()};
      return Behaviour{Kind::kSlow, kPartTime};
    };
    a_ = std::make_unique<FakeWorker>(made);
    b_ = std::make_unique<FakeWorker>(made);
    made.behave = [](const PartName&, uint32_t) { return Behaviour{Kind::kSlow, kPartTime}; };
    c_ = std::make_unique<FakeWorker>(made);
    ConsumerOptions options = OptionsFor({a_->endpoint(), b_->endpoint(), c_->endpoint()});
    options.progress_timeout = timeout;
    options.prefetch_steps = kPrefetchSteps;
    consumer_ = MustConnect(options);
  }
  absl::Duration Step() {
    absl::Time begin = absl::Now();
    ExpectSteps(*consumer_, 1, step_++);
    return absl::Now() - begin;
  }

  // The third worker takes a fiftieth of the timeout for a part.
  const absl::Duration kTimeout = kPatience * absl::Seconds(1);
  static constexpr absl::Duration kPartTime = absl::Milliseconds(20);
  static constexpr uint32_t kPrefetchSteps = 2;
  std::atomic<bool> grey_ = false;
  std::unique_ptr<FakeWorker> a_, b_, c_;
  std::unique_ptr<Consumer> consumer_;
  uint64_t step_ = 0;
};

TEST_P(TwoGreyWorkersOfThree, CostOneStepAndAreAskedLastFromThenOn) {
  Connect(kTimeout);
  ASSERT_NE(consumer_, nullptr);
  for (int i = 0; i < 6; ++i) Step();
  grey_ = true;
  int steps = 0;
  while (Step() < kTimeout / 2) ASSERT_LT(++steps, 100) << "nobody was asked";
  // Both are tried again, and the steps that asked them, the last of those fetched ahead, are as fast as any.
  const int asked_a = a_->requests(), asked_b = b_->requests();
  const absl::Time end = absl::Now() + 60 * kTimeout;
  int slow = 0;
  auto is_slow = [&] { return Step() < kTimeout * 3 / 4 ? 0 : 1; };
  while ((a_->requests() == asked_a || b_->requests() == asked_b) && absl::Now() < end) slow += is_slow();
  for (uint32_t i = 0; i <= kPrefetchSteps; ++i) slow += is_slow();
  EXPECT_EQ(slow, 0);
  EXPECT_GT(a_->requests(), asked_a) << "it is not given up for ever";
  EXPECT_GT(b_->requests(), asked_b) << "it is not given up for ever";
  ConsumerStats stats = consumer_->stats();
  EXPECT_LE(stats.duplicate_requests * 20, stats.requests);
}

TEST_P(TwoGreyWorkersOfThree, ServeAgainOnceTheyRecovered) {
  Connect(kTimeout / 2);
  ASSERT_NE(consumer_, nullptr);
  grey_ = true;
  for (int i = 0; i < 20 && consumer_->stats().grey_workers == 0; ++i) Step();
  EXPECT_GE(consumer_->stats().grey_workers, 1);
  grey_ = false;
  const int before_a = a_->requests(), before_b = b_->requests();
  const absl::Time end = absl::Now() + 2 * WorkerStanding::kLongestGrey;
  // Trusted for one kind of work, a worker may still be grey for another for a while.
  while ((a_->requests() < before_a + 20 || b_->requests() < before_b + 20 ||
          consumer_->stats().grey_workers > 0) &&
         absl::Now() < end) {
    Step();
  }
  EXPECT_GE(a_->requests(), before_a + 20);
  EXPECT_GE(b_->requests(), before_b + 20);
  EXPECT_EQ(consumer_->stats().grey_workers, 0);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TwoGreyWorkersOfThree,
                         testing::Values(Kind::kDeaf, Kind::kStuck, Kind::kSilent, Kind::kNeverDeliver));

// What stands still on the only worker is asked of it again, as often as it takes.
TEST(ConsumerFaults, ASingleWorkerThatStandsStillIsNeverGivenUp) {
  for (Kind kind : {Kind::kDeaf, Kind::kStuck, Kind::kNeverDeliver}) {
    Faults faults(kind, 3);
    FakeWorkerOptions made;
    made.behave = std::ref(faults);
    FakeWorker only(made);
    ConsumerOptions options = OptionsFor({only.endpoint()});
    options.progress_timeout = kPatience * absl::Milliseconds(150);
    options.prefetch_steps = 1;
    std::unique_ptr<Consumer> consumer = MustConnect(options);
    ASSERT_NE(consumer, nullptr);
    ExpectSteps(*consumer, 2);
    EXPECT_EQ(consumer->stats().duplicate_requests, 0);
  }
}

TEST(ConsumerFaults, FailuresOnThreeWorkersNameTheSampleAndTheExcludeLine) {
  FakeWorkerOptions failing;
  failing.behave = [](const PartName& name, uint32_t) {
    if (name.step != 2 || name.phase != kVisionPhase) return Behaviour();
    return Behaviour{Kind::kFail, {}, 13, "photos/a.tar/000123: the decoder crashed", "photos/a.tar/000123"};
  };
  FakeWorker a(failing), b(failing), c(failing), d(failing);
  std::unique_ptr<Consumer> consumer =
      MustConnect(OptionsFor({a.endpoint(), b.endpoint(), c.endpoint(), d.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 2);
  absl::Status status = consumer->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("on 3 workers"), HasSubstr("the decoder crashed"),
                    HasSubstr("\"photos/a.tar/000123\""), HasSubstr("step 2 vision rank 0")));
  EXPECT_EQ(consumer->Next().status().code(), absl::StatusCode::kDataLoss) << "it stays";
}

// Fails every part of phase vision until `until`, for a reason that is the machine's.
FakeWorkerOptions OutageUntil(absl::Time until, std::string message) {
  FakeWorkerOptions options;
  options.behave = [until, message](const PartName& name, uint32_t) {
    if (name.phase != kVisionPhase || SteadyNow() >= until) return Behaviour();
    return Behaviour{Kind::kFail, {}, 5, message, "photos/a.tar/000123", FailureKind::kMachine};
  };
  return options;
}

TEST(ConsumerFaults, AnOutageOfAllMachinesIsWaitedFor) {
  for (size_t num_workers : {1, 3}) {
    const absl::Time until = SteadyNow() + absl::Seconds(1);
    std::vector<std::unique_ptr<FakeWorker>> workers;
    std::vector<std::string> endpoints;
    for (size_t i = 0; i < num_workers; ++i) {
      workers.push_back(std::make_unique<FakeWorker>(OutageUntil(until, "a.tar: No such file or directory")));
      endpoints.push_back(workers.back()->endpoint());
    }
    std::unique_ptr<Consumer> consumer = MustConnect(OptionsFor(endpoints));
    ASSERT_NE(consumer, nullptr);
    ExpectSteps(*consumer, 12);
    EXPECT_GE(SteadyNow(), until);
    int requests = 0, max_attempt = 0;
    for (const auto& worker : workers) {
      requests += worker->requests();
      max_attempt = std::max(max_attempt, worker->max_attempt());
    }
    // 12 steps of some parts, and for each part of the outage's steps about seven a worker and outage.
    EXPECT_LT(requests, 12 * 8 + 4 * 4 * 12 * static_cast<int>(num_workers)) << "asked with pauses";
    EXPECT_EQ(max_attempt, 0) << "no work was done twice";
  }
}

TEST(ConsumerFaults, ABrokenMachineEndsTheStepAtItsDeadlineWithoutBlamingData) {
  FakeWorker a(OutageUntil(absl::InfiniteFuture(), "a.tar: Too many open files"));
  FakeWorker b(OutageUntil(absl::InfiniteFuture(), "a.tar: Input/output error"));
  FakeWorker c(OutageUntil(absl::InfiniteFuture(), "a.tar: Input/output error"));
  ConsumerOptions options = OptionsFor({a.endpoint(), b.endpoint(), c.endpoint()});
  options.step_timeout = kPatience * absl::Seconds(2);
  std::unique_ptr<Consumer> consumer = MustConnect(options);
  ASSERT_NE(consumer, nullptr);
  const absl::Status status = consumer->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(
      status.message(),
      AllOf(HasSubstr(a.endpoint() + ": a.tar: Too many open files ("), HasSubstr(" times in "),
            HasSubstr(c.endpoint() + ": a.tar: Input/output error"), HasSubstr("the data is not at fault"),
            Not(HasSubstr("exclude")), Not(HasSubstr("000123"))));
}

TEST(ConsumerFaults, OneBrokenMachineAmongThreeHoldsNobodyUp) {
  FakeWorker a(OutageUntil(absl::InfiniteFuture(), "a.tar: Too many open files")), b, c;
  ConsumerOptions options = OptionsFor({a.endpoint(), b.endpoint(), c.endpoint()});
  options.step_timeout = kPatience * absl::Seconds(20);
  std::unique_ptr<Consumer> consumer = MustConnect(options);
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 24);
}

TEST(ConsumerFaults, FailuresOfMachinesCountTowardsNoVerdictOnTheData) {
  std::atomic<int> asked = 0;
  FakeWorkerOptions mixed;  // five failures of the machine and two of the attempt, then sound
  mixed.behave = [&](const PartName& name, uint32_t) {
    if (name.phase != kVisionPhase || name.step != 0 || name.microbatch != 0 || name.piece != 0)
      return Behaviour();
    const int number = asked++;
    if (number >= 7) return Behaviour();
    const bool machine = number != 1 && number != 4;
    return Behaviour{Kind::kFail, {}, 13, "why", "", machine ? FailureKind::kMachine : FailureKind::kAttempt};
  };
  FakeWorker only(mixed);
  std::unique_ptr<Consumer> consumer = MustConnect(OptionsFor({only.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 2);
  EXPECT_EQ(asked, 8);
}

TEST(ConsumerFaults, AStepThatAWorkerCannotDescribeYetIsAskedOfItAgainUntilItCan) {
  std::atomic<int> asked = 0;
  FakeWorkerOptions far;
  far.describe_failure = [&](uint64_t step) -> absl::Status {
    if (step != 1 || ++asked > 4) return absl::OkStatus();
    return WithKind(absl::UnavailableError("the table is being compiled: 12 %"), FailureKind::kNotYet);
  };
  FakeWorker only(far);
  std::unique_ptr<Consumer> consumer = MustConnect(OptionsFor({only.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 3);
  EXPECT_EQ(asked, 5);
  EXPECT_EQ(consumer->stats().replaced_workers, 0) << "it is not lost";
}

TEST(ConsumerFaults, WhatKeepsAStepFromBeingDescribedIsNamedAtTheDeadline) {
  for (FailureKind kind : {FailureKind::kNotYet, FailureKind::kMachine}) {
    FakeWorkerOptions failing;
    failing.describe_failure = [kind](uint64_t) { return WithKind(absl::InternalError("index: EIO"), kind); };
    FakeWorker only(failing);
    ConsumerOptions options = OptionsFor({only.endpoint()});
    options.step_timeout = kPatience * absl::Seconds(1);
    std::unique_ptr<Consumer> consumer = MustConnect(options);
    ASSERT_NE(consumer, nullptr);
    const absl::Status status = consumer->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(only.endpoint()), HasSubstr("index: EIO")));
    const bool blames_machine =
        std::string(status.message()).find("the data is not at fault") != std::string::npos;
    EXPECT_EQ(blames_machine, kind == FailureKind::kMachine) << status;
  }
}

TEST(ConsumerFaults, ThreeFailuresAreEnoughWhereThereIsOneWorker) {
  std::atomic<int> asked = 0;
  FakeWorkerOptions failing;
  failing.behave = [&](const PartName& name, uint32_t) {
    if (name.phase == kVisionPhase && name.step == 0) ++asked;
    return Behaviour{name.phase == kVisionPhase ? Kind::kFail : Kind::kServe};
  };
  FakeWorker only(failing);
  std::unique_ptr<Consumer> consumer = MustConnect(OptionsFor({only.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  EXPECT_EQ(consumer->Next().status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(asked, 3);
}

TEST(ConsumerFaults, BytesDamagedOnTheWayAreCountedAndAskedOfAnother) {
  FakeWorkerOptions damaging;
  damaging.behave = [](const PartName&, uint32_t) { return Behaviour{Kind::kWrongHash}; };
  FakeWorker a(damaging), b;
  std::unique_ptr<Consumer> consumer = MustConnect(OptionsFor({a.endpoint(), b.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 6);
  EXPECT_GT(consumer->stats().hash_failures, 0);
}

TEST(ConsumerFaults, DeadlineExceededSaysWhatWasAwaited) {
  FakeWorkerOptions silent;
  silent.behave = [](const PartName& name, uint32_t) {
    return Behaviour{name.phase == kVisionPhase ? Kind::kStuck : Kind::kServe};
  };
  FakeWorker worker(silent);
  ConsumerOptions options = OptionsFor({worker.endpoint()});
  options.step_timeout = absl::Seconds(1);
  options.progress_timeout = absl::Seconds(10);
  std::unique_ptr<Consumer> consumer = MustConnect(options);
  ASSERT_NE(consumer, nullptr);
  absl::Status status = consumer->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("step 0 did not arrive within 1s"), HasSubstr("step 0 vision rank 0"),
                    HasSubstr(worker.endpoint()), HasSubstr("queue 3"), HasSubstr("decode 1/1000")));
}

// A part that never comes shows at the workers while it is waited for, each moment at one of them.
TEST(ConsumerFaults, AWaitThatDoesNotEndIsReportedWhileItGoesOn) {
  std::atomic<bool> reported = false;
  FakeWorkerOptions holding;
  holding.behave = [&](const PartName& name, uint32_t) {
    while (name.phase == kVisionPhase && !reported) absl::SleepFor(absl::Milliseconds(5));
    return Behaviour{};
  };
  FakeWorker a(holding), b(holding), c(holding);
  ConsumerOptions options = OptionsFor({a.endpoint(), b.endpoint(), c.endpoint()});
  options.progress_timeout = absl::Minutes(1);
  std::unique_ptr<Consumer> consumer = MustConnect(options);
  ASSERT_NE(consumer, nullptr);
  std::thread observer([&] {
    double before = 0;
    while (a.wait_reports() + b.wait_reports() + c.wait_reports() < 2) {
      const double now = consumer->stats().wait_seconds;
      EXPECT_GE(now, before) << "the wait that goes on is part of it";
      before = now;
      absl::SleepFor(absl::Milliseconds(5));
    }
    EXPECT_GT(before, 0);
    reported = true;
  });
  ExpectSteps(*consumer, 1);
  observer.join();
  const double told = a.told_wait_seconds() + b.told_wait_seconds() + c.told_wait_seconds();
  EXPECT_GT(told, 0);
  EXPECT_LE(told, consumer->stats().wait_seconds);
}

TEST(ConsumerFaults, DeadlineExceededNamesWorkersThatRefuse) {
  FakeWorkerOptions full;
  full.behave = [](const PartName&, uint32_t) { return Behaviour{Kind::kRefuse, absl::Milliseconds(50)}; };
  FakeWorker worker(full);
  ConsumerOptions options = OptionsFor({worker.endpoint()});
  options.step_timeout = absl::Seconds(1);
  std::unique_ptr<Consumer> consumer = MustConnect(options);
  ASSERT_NE(consumer, nullptr);
  absl::Status status = consumer->Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("refused: full"), HasSubstr(worker.endpoint())));
  // Retries are spaced by what the worker asked for, whatever the number of parts that wait.
  EXPECT_LE(worker.requests(), 60);
}

TEST(ConsumerFaults, NoWorkerIsUnavailableAndNamed) {
  std::string endpoint;
  {
    FakeWorker gone;
    endpoint = gone.endpoint();
  }
  ConsumerOptions options = OptionsFor({endpoint});
  options.connect_timeout = absl::Milliseconds(500);
  absl::Status status = Consumer::Connect(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(endpoint));
}

TEST(ConsumerFaults, WorkersOfAnotherStreamOrVersionAreRefusedAndNamed) {
  FakeWorker other({.stream_digest = "0000000000000000000000000000000f"});
  ConsumerOptions options = OptionsFor({other.endpoint()});
  options.expect_stream_digest = FakeWorkerOptions().stream_digest;
  absl::Status status = Consumer::Connect(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("stream digest"), HasSubstr(options.expect_stream_digest),
                    HasSubstr("0000000000000000000000000000000f"), HasSubstr(other.endpoint())));

  FakeWorker newer({.stream_version = 99});
  status = Consumer::Connect(OptionsFor({newer.endpoint()})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("stream version 99"), HasSubstr(newer.endpoint())));

  FakeWorker older({.part_format = kPartFormatVersion - 1});
  status = Consumer::Connect(OptionsFor({older.endpoint()})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("part format 2, this consumer needs 3"),
                                      HasSubstr("one release"), HasSubstr(older.endpoint())));

  FakeWorker moved({.layout_digest = "0000000000000000000000000000000e"});
  options = OptionsFor({moved.endpoint()});
  options.expect_layout_digest = FakeWorkerOptions().layout_digest;
  status = Consumer::Connect(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("layout digest"));
}

TEST(ConsumerFaults, AWorkerOfAnotherStreamAmongOthersServesNothing) {
  FakeWorker good, other({.stream_digest = "0000000000000000000000000000000f"}),
      moved({.layout_digest = "0000000000000000000000000000000e"}), newer({.stream_version = 99});
  std::mutex mutex;
  std::string log;
  ConsumerOptions options =
      OptionsFor({good.endpoint(), other.endpoint(), moved.endpoint(), newer.endpoint()});
  options.expect_stream_digest = FakeWorkerOptions().stream_digest;
  options.expect_layout_digest = FakeWorkerOptions().layout_digest;
  options.log = [&](const std::string& line) {
    std::lock_guard<std::mutex> lock(mutex);
    log += line + "\n";
  };
  std::unique_ptr<Consumer> consumer = MustConnect(options);
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 10);
  consumer.reset();
  EXPECT_EQ(other.requests() + moved.requests() + newer.requests(), 0);
  std::lock_guard<std::mutex> lock(mutex);
  EXPECT_THAT(log,
              AllOf(HasSubstr(other.endpoint()), HasSubstr(moved.endpoint()), HasSubstr(newer.endpoint())));
}

// Nothing says which stream is wanted: no rank may follow whichever worker answered it first.
TEST(ConsumerFaults, WorkersOfTwoStreamsAreAnErrorThatNamesBoth) {
  const std::string digest = FakeWorkerOptions().stream_digest;
  FakeWorker a, b, other({.stream_digest = "0000000000000000000000000000000f"});
  for (uint32_t rank = 0; rank < 6; ++rank) {
    ConsumerOptions options = OptionsFor({a.endpoint(), b.endpoint(), other.endpoint()});
    options.rank = rank;
    absl::Status status = Consumer::Connect(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << rank;
    EXPECT_THAT(status.message(), AllOf(HasSubstr(digest), HasSubstr("0000000000000000000000000000000f"),
                                        HasSubstr(other.endpoint()), HasSubstr(a.endpoint()),
                                        HasSubstr("expect_stream_digest"), HasSubstr("--job")));
  }
  ConsumerOptions options = OptionsFor({a.endpoint(), b.endpoint(), other.endpoint()});
  options.expect_stream_digest = digest;
  std::unique_ptr<Consumer> consumer = MustConnect(options);
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 3);
  EXPECT_EQ(other.requests(), 0);
}

TEST(ConsumerFaults, WorkersOfTwoLayoutsAreAnErrorToo) {
  FakeWorker a, other({.layout_digest = "0000000000000000000000000000000e"});
  ConsumerOptions options = OptionsFor({a.endpoint(), other.endpoint()});
  options.expect_stream_digest = FakeWorkerOptions().stream_digest;  // as a resumed state names it
  absl::Status status = Consumer::Connect(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("layout digest 0000000000000000000000000000000e by " + other.endpoint()),
                    HasSubstr("expect_layout_digest")));
}

TEST(ConsumerFaults, DrainingWorkersOfAnotherStreamHaveNoSay) {
  FakeWorker a({.draining = true}), b({.draining = true});
  FakeWorker next({.stream_digest = "0000000000000000000000000000000f"});
  std::unique_ptr<Consumer> consumer = MustConnect(OptionsFor({a.endpoint(), b.endpoint(), next.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  EXPECT_EQ(consumer->state().stream_digest, "0000000000000000000000000000000f");
  consumer = MustConnect(OptionsFor({a.endpoint(), b.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  EXPECT_EQ(consumer->state().stream_digest, FakeWorkerOptions().stream_digest) << "nobody else is there";
}

TEST(ConsumerFaults, ADeadWorkerStopsNothing) {
  auto first = std::make_unique<FakeWorker>();
  FakeWorker second;
  std::unique_ptr<Consumer> consumer = MustConnect(OptionsFor({first->endpoint(), second.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 3);
  first->Die();
  auto step = consumer->Next();
  for (int i = 0; i < 10 && step.ok(); ++i) step = consumer->Next();
  EXPECT_TRUE(step.ok()) << step.status();
}

TEST(ConsumerFaults, ADescriptionThatTakesTooLongIsAskedOfAnother) {
  std::atomic<bool> slow = true;
  FakeWorkerOptions sleepy;
  sleepy.before_describing = [&](uint64_t) {
    while (slow) absl::SleepFor(absl::Milliseconds(10));
  };
  FakeWorker a(sleepy), b;
  std::unique_ptr<Consumer> consumer = MustConnect(OptionsFor({a.endpoint(), b.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 4);
  slow = false;
}

class ConsumerOverTransport : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Transports, ConsumerOverTransport, testing::Values("grpc", "ucx", "memory"));

TEST_P(ConsumerOverTransport, ManyFaultsAtRandomChangeNoByte) {
  std::mutex mutex;
  std::minstd_rand random(7);
  FakeWorkerOptions made{.transport = GetParam()};
  made.behave = [&](const PartName&, uint32_t) {
    std::lock_guard<std::mutex> lock(mutex);
    auto kinds = {Kind::kRefuse, Kind::kDropLater, Kind::kWrongHash, Kind::kForgetSession, Kind::kSlow};
    if (random() % 4 != 0) return Behaviour();
    return Behaviour{kinds.begin()[random() % kinds.size()], absl::Milliseconds(5)};
  };
  FakeWorker a(made), b(made), c(made), d(made), e(made);
  std::unique_ptr<Consumer> consumer =
      MustConnect(OptionsFor({a.endpoint(), b.endpoint(), c.endpoint(), d.endpoint(), e.endpoint()}));
  ASSERT_NE(consumer, nullptr);
  ExpectSteps(*consumer, 60);
}

}  // namespace
}  // namespace evenkeel::client
