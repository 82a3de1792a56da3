#include "client/worker_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>

#include "client/part_fetch.h"
#include "client/worker_ring.h"
#include "tests/usual_phases.h"

namespace evenkeel::client {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000000);

TEST(WorkerRing, NamesEveryWorkerOnce) {
  for (size_t workers = 0; workers < 12; ++workers) {
    for (uint32_t rank = 0; rank < 20; ++rank) {
      for (uint64_t step = 0; step < 9; ++step) {
        std::vector<size_t> order = AskOrder(workers, rank, step, step % 3);
        std::sort(order.begin(), order.end());
        std::vector<size_t> all(workers);
        std::iota(all.begin(), all.end(), 0);
        ASSERT_EQ(order, all);
      }
    }
  }
}

TEST(WorkerRing, SpreadsRequestsEvenlyAndHoldsFewSessions) {
  constexpr size_t kWorkers = 16;
  std::vector<int> asked(kWorkers);
  for (uint32_t rank = 0; rank < 32; ++rank) {
    std::set<size_t> homes;
    for (uint64_t step = 0; step < 40; ++step) {
      size_t first = AskOrder(kWorkers, rank, step, 0)[0];
      ++asked[first];
      homes.insert(first);
    }
    EXPECT_LE(homes.size(), kHomeWorkers);
  }
  EXPECT_EQ(*std::min_element(asked.begin(), asked.end()), *std::max_element(asked.begin(), asked.end()));
}

class Table : public testing::Test {
 protected:
  Table() {
    table_.SetListed({"a:1", "b:1", "c:1"});
    for (auto& [endpoint, worker] : table_.all()) worker.state = Worker::State::kReady;
  }
  std::string Ask(uint64_t step = 0, std::set<std::string> excluded = {}, Dislikes disliked = {},
                  absl::Time now = kNow) {
    Choice choice = table_.Choose(0, step, 0, kVisionPhase, excluded, disliked, now);
    return choice.ask == nullptr ? "" : choice.ask->endpoint;
  }
  WorkerTable table_;
};

TEST_F(Table, RotatesWithTheStep) {
  EXPECT_EQ(Ask(0), "a:1");
  EXPECT_EQ(Ask(1), "b:1");
  EXPECT_EQ(Ask(2), "c:1");
  EXPECT_EQ(Ask(3), "a:1");
}

TEST_F(Table, PassesOverTheBusyAndTheAway) {
  table_.Find("a:1")->busy_until = kNow + absl::Seconds(1);
  table_.Find("b:1")->state = Worker::State::kAway;
  table_.Find("b:1")->until = kNow + absl::Seconds(1);
  EXPECT_EQ(Ask(), "c:1");
  EXPECT_EQ(Ask(0, {"c:1"}), "");
}

TEST_F(Table, ABusyWorkerStillTakesLowerSteps) {
  Worker& a = *table_.Find("a:1");
  a.busy_until = kNow + absl::Seconds(1);
  a.busy_step = 6;
  EXPECT_EQ(Ask(6), "b:1");
  EXPECT_EQ(Ask(3), "a:1");
}

TEST_F(Table, AfterARefusalOneRequestAtATimeUntilOneIsAccepted) {
  Worker& a = *table_.Find("a:1");
  a.refused_last = true;
  EXPECT_EQ(Ask(), "a:1");
  a.unanswered = 1;
  EXPECT_EQ(Ask(), "b:1");
  a.refused_last = false;
  EXPECT_EQ(Ask(), "a:1");
}

TEST_F(Table, DislikedWorkersAreAskedOnlyWhereNobodyElseIsAlive) {
  EXPECT_EQ(Ask(0, {}, {{"a:1", 1}}), "b:1");
  EXPECT_EQ(Ask(0, {}, {{"a:1", 1}, {"b:1", 1}, {"c:1", 1}}), "a:1");
  EXPECT_EQ(Ask(0, {}, {{"a:1", 2}, {"b:1", 2}, {"c:1", 1}}), "c:1") << "the least disliked first";
  table_.Find("b:1")->busy_until = table_.Find("c:1")->busy_until = kNow + absl::Seconds(1);
  EXPECT_EQ(Ask(0, {}, {{"a:1", 1}}), "") << "the others are only busy";
}

TEST_F(Table, AGreyWorkerIsAskedLastAndTheLeastGreyFirst) {
  Worker& a = *table_.Find("a:1");
  a.standing.Stall(kVisionPhase, kNow, kNow, kNow, absl::Seconds(10));
  EXPECT_EQ(Ask(), "b:1");
  EXPECT_EQ(Ask(0, {"b:1", "c:1"}), "a:1") << "but asked where nobody else is";
  Worker& b = *table_.Find("b:1");
  Worker& c = *table_.Find("c:1");
  b.standing.Stall(kVisionPhase, kNow, kNow, kNow, absl::Seconds(10));
  EXPECT_EQ(Ask(), "c:1");
  c.busy_until = kNow + absl::Seconds(1);
  EXPECT_EQ(Ask(), "") << "the third is only busy";
  c.state = Worker::State::kAway;
  c.until = c.alone_until = kNow + absl::Seconds(1);
  a.standing.Stall(kVisionPhase, kNow + absl::Seconds(1), kNow, kNow, absl::Seconds(10));
  EXPECT_EQ(Ask(), "b:1");
  EXPECT_EQ(Ask(1), "b:1");
}

TEST_F(Table, AWorkerOnTrialHasOneRequestAtATime) {
  Worker& a = *table_.Find("a:1");
  a.standing.Stall(kVisionPhase, kNow, kNow, kNow, absl::Seconds(10));
  absl::Time later = kNow + absl::Seconds(11);
  EXPECT_EQ(Ask(0, {}, {}, later), "a:1");
  a.standing.Ask(kVisionPhase);
  EXPECT_EQ(Ask(0, {}, {}, later), "b:1");
  a.standing.End(kVisionPhase);
  EXPECT_EQ(Ask(0, {}, {}, later), "a:1");
}

TEST_F(Table, NoSessionIsOpenedWithAGreyWorkerWhileAnotherServes) {
  Worker& a = *table_.Find("a:1");
  a.state = Worker::State::kAway;
  a.standing.Stall(kVisionPhase, kNow, kNow, kNow, absl::Seconds(10));
  EXPECT_EQ(table_.Choose(0, 0, 0, kVisionPhase, {}, {}, kNow).open, nullptr);
  table_.Find("b:1")->state = table_.Find("c:1")->state = Worker::State::kAway;
  table_.Find("b:1")->until = table_.Find("c:1")->until = kNow + absl::Hours(1);
  table_.Find("b:1")->alone_until = table_.Find("c:1")->alone_until = kNow + absl::Hours(1);
  EXPECT_EQ(table_.Choose(0, 0, 0, kVisionPhase, {}, {}, kNow).open, &a);
}

// A worker that was restarted alone must not be waited for longer than about a second.
TEST_F(Table, WhereNobodyElseIsReadyALostWorkerIsTriedSoon) {
  for (const char* endpoint : {"a:1", "b:1", "c:1"}) {
    Worker& worker = *table_.Find(endpoint);
    worker.state = Worker::State::kAway;
    worker.until = kNow + absl::Seconds(15);
    worker.alone_until = kNow + absl::Seconds(1);
  }
  const absl::Time later = kNow + absl::Seconds(2);
  EXPECT_EQ(table_.Choose(0, 0, 0, kVisionPhase, {}, {}, kNow).open, nullptr);
  EXPECT_EQ(table_.Choose(0, 0, 0, kVisionPhase, {}, {}, later).open, table_.Find("a:1"));
  table_.Find("c:1")->state = Worker::State::kReady;
  EXPECT_EQ(table_.Choose(0, 0, 0, kVisionPhase, {}, {}, later).open, nullptr)
      << "another is ready: the long back-off holds";
  EXPECT_EQ(Ask(0, {}, {}, later), "c:1");
  table_.Find("c:1")->standing.Stall(kVisionPhase, kNow, kNow, later, absl::Seconds(10));
  EXPECT_EQ(table_.Choose(0, 0, 0, kVisionPhase, {}, {}, later).open, table_.Find("a:1"))
      << "a grey one is none";
}

TEST_F(Table, OpensSessionsLazilyAndWaitsAMomentForThePreferred) {
  Worker& a = *table_.Find("a:1");
  a.state = Worker::State::kIdle;
  Choice choice = table_.Choose(0, 0, 0, kVisionPhase, {}, {}, kNow);
  EXPECT_EQ(choice.open, &a);
  EXPECT_TRUE(choice.wait);
  a.state = Worker::State::kOpening;
  a.since = kNow;
  EXPECT_EQ(Ask(0), "");
  EXPECT_EQ(Ask(0, {}, {}, kNow + absl::Seconds(1)), "b:1");
  EXPECT_EQ(Ask(1), "b:1") << "others do not wait for it";
}

TEST(WorkerTable, AsksTheWorkersOfItsNodeBeforeTheOthers) {
  WorkerTable table(OwnNode({"10.0.0.7"}));
  table.SetListed({"10.0.0.5:1", "10.0.0.6:1", "10.0.0.7:1", "10.0.0.7:2"});
  for (auto& [endpoint, worker] : table.all()) worker.state = Worker::State::kReady;
  const auto ask = [&](uint64_t step) {
    return table.Choose(0, step, 0, kVisionPhase, {}, {}, kNow).ask->endpoint;
  };
  std::set<std::string> asked;
  for (uint64_t step = 0; step < 8; ++step) asked.insert(ask(step));
  EXPECT_EQ(asked, (std::set<std::string>{"10.0.0.7:1", "10.0.0.7:2"}));
  table.Find("10.0.0.7:1")->busy_until = kNow + absl::Seconds(1);
  EXPECT_EQ(ask(0), "10.0.0.7:2");
  table.Find("10.0.0.7:2")->state = Worker::State::kAway;
  table.Find("10.0.0.7:2")->until = kNow + absl::Seconds(1);
  EXPECT_EQ(ask(0), "10.0.0.5:1");
}

TEST(OwnNode, HasTheAddressesOfThisMachineAndOfItsVariable) {
  const OwnNode own({"10.0.0.7", "fd00::7", "no address"});
  EXPECT_TRUE(own.Has("10.0.0.7:7000"));
  EXPECT_TRUE(own.Has("[fd00:0::0007]:7000")) << "another notation";
  EXPECT_TRUE(own.Has("127.0.0.2:7000"));
  EXPECT_TRUE(own.Has("localhost:7000"));
  EXPECT_FALSE(own.Has("10.0.0.70:7000"));
  EXPECT_FALSE(own.Has("worker-7:7000"));
  EXPECT_FALSE(OwnNode().Has("127.0.0.1:7000"));
  setenv(kNodeAddressVariable, "192.0.2.9, 192.0.2.10", 1);
  const OwnNode named = OwnNode::OfThisProcess();
  unsetenv(kNodeAddressVariable);
  EXPECT_TRUE(named.Has("192.0.2.10:7000"));
  EXPECT_TRUE(named.Has("127.0.0.1:7000"));
  EXPECT_FALSE(named.Has("192.0.2.11:7000"));
  EXPECT_FALSE(OwnNode::OfThisProcess().Has("192.0.2.9:7000"));
}

TEST_F(Table, ForgetsWorkersThatLeftOnceTheyAreDone) {
  table_.Find("b:1")->in_flight = 1;
  EXPECT_EQ(table_.SetListed({"a:1"}).size(), 1);
  EXPECT_NE(table_.Find("b:1"), nullptr);
  EXPECT_EQ(Ask(1), "a:1");
  table_.Find("b:1")->in_flight = 0;
  EXPECT_EQ(table_.TakeFinished().size(), 1);
  EXPECT_EQ(table_.Find("b:1"), nullptr);
}

TEST(PartFetch, TheVerdictNeedsThreeWorkersOrThreeAttempts) {
  PartFetch part;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(part.Verdict(3).ok());
    part.failed.push_back({"a:1", "why", ""});
  }
  EXPECT_TRUE(part.Verdict(3).ok()) << "all on the same worker";
  EXPECT_EQ(part.Verdict(2).code(), absl::StatusCode::kDataLoss);
  part.failed.push_back({"b:1", "why", ""});
  EXPECT_TRUE(part.Verdict(3).ok());
  part.failed.push_back({"c:1", "why", ""});
  EXPECT_EQ(part.Verdict(3).code(), absl::StatusCode::kDataLoss);
}

TEST(PartFetch, BytesOnTheWayHaveMoreTime) {
  const absl::Duration timeout = absl::Seconds(10);
  Attempt attempt;
  attempt.advanced = kNow;
  attempt.state = Attempt::State::kAccepted;
  EXPECT_EQ(StaleAt(attempt, 256 << 20, absl::InfinitePast(), timeout), kNow + absl::Seconds(10));
  EXPECT_EQ(StaleAt(attempt, 256 << 20, kNow + absl::Hours(1), timeout), kNow + absl::Seconds(10))
      << "bytes of other parts do not make this one";
  attempt.stage = kSendingStage;
  EXPECT_EQ(StaleAt(attempt, 256 << 20, absl::InfinitePast(), timeout), kNow + absl::Seconds(74));
  attempt.state = Attempt::State::kSent;
  EXPECT_EQ(StaleAt(attempt, 256 << 20, absl::InfinitePast(), timeout), kNow + absl::Seconds(74));
}

TEST(PartFetch, BytesThatArriveAreProgressHoweverSlowly) {
  Attempt attempt;
  attempt.advanced = kNow;
  attempt.state = Attempt::State::kSent;
  EXPECT_EQ(StaleAt(attempt, 1 << 20, kNow + absl::Hours(1), absl::Seconds(10)),
            kNow + absl::Hours(1) + absl::Seconds(10));
}

}  // namespace
}  // namespace evenkeel::client
