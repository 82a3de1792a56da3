// The pool: lowest step first, one production for all who ask, a budget that holds, work dropped when
// unwanted.
#include "server/part_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <time.h>

#include <cstring>
#include <map>
#include <random>
#include <stdexcept>
#include <thread>

#include "absl/time/clock.h"
#include "core/failure.h"

namespace evenkeel::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What the tasks of a test share: their order, and a gate that units wait at.
struct Shop {
  Mutex mutex;
  CondVar changed;
  bool open ABSL_GUARDED_BY(mutex) = true;
  std::vector<uint64_t> expected ABSL_GUARDED_BY(mutex);  // steps
  std::vector<uint64_t> begun ABSL_GUARDED_BY(mutex);     // steps
  size_t units_at_gate ABSL_GUARDED_BY(mutex) = 0;
  std::vector<std::pair<size_t, std::thread::id>> ran ABSL_GUARDED_BY(mutex);  // unit, thread

  void SetOpen(bool value) {
    MutexLock lock(mutex);
    open = value;
    changed.NotifyAll();
  }
  void Pass() {
    MutexLock lock(mutex);
    ++units_at_gate;
    changed.NotifyAll();
    while (!open) changed.Wait(mutex);
  }
  void WaitForUnits(size_t count) {
    MutexLock lock(mutex);
    while (units_at_gate < count) changed.Wait(mutex);
  }
  std::vector<uint64_t> order() {
    MutexLock lock(mutex);
    return begun;
  }
};

struct TaskSpec {
  uint64_t step = 0;
  uint32_t rank = 0;
  uint64_t bytes = 100;
  size_t units = 1;
  uint64_t scratch = 0;
  size_t at_once = 1;
  enum { kGood, kFails, kThrows } kind = kGood;
};

class FakeTask : public stream::PartTask {
 public:
  FakeTask(Shop& shop, const TaskSpec& spec)
      : shop_(shop), spec_(spec), name_{.step = spec.step, .rank = spec.rank} {}
  const PartName& name() const override { return name_; }
  uint64_t num_bytes() const override { return spec_.bytes; }
  size_t num_units() const override { return spec_.units; }
  uint64_t scratch_bytes() const override { return spec_.scratch; }
  size_t units_at_once(size_t) const override { return spec_.at_once; }
  void Expect() override {
    MutexLock lock(shop_.mutex);
    shop_.expected.push_back(spec_.step);
  }
  void Begin(std::span<std::byte> part) override {
    EXPECT_EQ(part.size(), spec_.bytes);
    std::memset(part.data(), static_cast<int>(spec_.step), part.size());
    MutexLock lock(shop_.mutex);
    shop_.begun.push_back(spec_.step);
  }
  absl::Status RunUnit(size_t unit, std::span<std::byte> part) override {
    shop_.Pass();
    {
      MutexLock lock(shop_.mutex);
      shop_.ran.emplace_back(unit, std::this_thread::get_id());
    }
    part[unit] = std::byte(unit);
    if (spec_.kind == TaskSpec::kFails) {
      return stream::WithExcludeLine(
          WithKind(absl::UnavailableError("the decoder ended"), FailureKind::kAttempt), "a/b/c");
    }
    if (spec_.kind == TaskSpec::kThrows) throw std::runtime_error("boom");
    return absl::OkStatus();
  }

 private:
  Shop& shop_;
  const TaskSpec spec_;
  const PartName name_;
};

class Listener : public PartListener {
 public:
  enum class End { kNone, kReady, kDropped, kFailed };
  void OnProgress(std::string_view stage, uint64_t done, uint64_t total) override {
    MutexLock lock(mutex_);
    if (end_ != End::kNone) return;  // it was on its way
    EXPECT_GE(done, done_);
    EXPECT_LE(done, total);
    done_ = done;
    stage_ = stage;
    ++reports_;
    ended_.NotifyAll();
  }
  void OnReady(std::shared_ptr<const ReadyPart> part) override {
    MutexLock lock(mutex_);
    part_ = std::move(part);
    SetEnd(End::kReady);
  }
  void OnDropped(absl::Duration retry_after, const std::string&) override {
    MutexLock lock(mutex_);
    EXPECT_GT(retry_after, absl::ZeroDuration());
    SetEnd(End::kDropped);
  }
  void OnFailed(const absl::Status& status) override {
    MutexLock lock(mutex_);
    status_ = status;
    SetEnd(End::kFailed);
  }

  End Wait() {
    MutexLock lock(mutex_);
    while (end_ == End::kNone) ended_.Wait(mutex_);
    return end_;
  }
  End end() {
    MutexLock lock(mutex_);
    return end_;
  }
  void WaitForReports(int count, uint64_t done = 0) {
    MutexLock lock(mutex_);
    while (reports_ < count || done_ < done) ended_.Wait(mutex_);
  }
  absl::Status status() {
    MutexLock lock(mutex_);
    return status_;
  }
  std::shared_ptr<const ReadyPart> TakePart() {
    MutexLock lock(mutex_);
    return std::move(part_);
  }
  std::string stage() {
    MutexLock lock(mutex_);
    return stage_;
  }

 private:
  void SetEnd(End end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    EXPECT_EQ(end_, End::kNone) << "a request ends once";
    end_ = end;
    ended_.NotifyAll();
  }
  Mutex mutex_;
  CondVar ended_;
  End end_ ABSL_GUARDED_BY(mutex_) = End::kNone;
  uint64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  int reports_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string stage_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const ReadyPart> part_ ABSL_GUARDED_BY(mutex_);
};

struct Asked {
  PartPool::Answer answer;
  std::shared_ptr<Listener> listener;
};

Asked Ask(PartPool& pool, Shop& shop, const TaskSpec& spec) {
  Asked asked{.listener = std::make_shared<Listener>()};
  asked.answer = pool.Request(std::make_unique<FakeTask>(shop, spec), asked.listener);
  return asked;
}

using End = Listener::End;

// What a part of `bytes` counts for.
uint64_t Held(uint64_t bytes) { return ReadyPart::HeldBytes(bytes, /*is_shared=*/false); }

TEST(PartPool, MakesAPartOnceAndHashesIt) {
  Shop shop;
  PartPool pool({.num_threads = 3, .kept_bytes = 0}, nullptr);
  const Asked asked = Ask(pool, shop, {.step = 9, .units = 20});
  EXPECT_TRUE(asked.answer.accepted);
  ASSERT_EQ(asked.listener->Wait(), End::kReady);
  const auto part = asked.listener->TakePart();
  ASSERT_EQ(part->bytes().size(), 100);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(part->bytes()[i], std::byte(i < 20 ? i : 9));
  EXPECT_EQ(part->hash(), DigestOf(part->bytes()));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(part->bytes().data()) % 64, 0);
}

TEST(PartPool, AnAcceptedPartAnnouncesOnceWhatItReads) {
  Shop shop;
  PartPool pool({.num_threads = 3, .budget_bytes = 1000, .kept_bytes = 0}, nullptr);
  shop.SetOpen(false);
  const Asked one = Ask(pool, shop, {.step = 9});
  const Asked same = Ask(pool, shop, {.step = 9});  // made already
  const Asked refused = Ask(pool, shop, {.step = 10, .bytes = 950});
  EXPECT_TRUE(one.answer.accepted && same.answer.accepted);
  EXPECT_FALSE(refused.answer.accepted);
  shop.SetOpen(true);
  EXPECT_EQ(one.listener->Wait(), End::kReady);
  MutexLock lock(shop.mutex);
  EXPECT_THAT(shop.expected, ElementsAre(9));
}

TEST(PartPool, RunsShortUnitsInARowOnOneThread) {
  Shop shop;
  PartPool pool({.num_threads = 4}, nullptr);
  for (uint64_t step = 0; step < 50; ++step) {
    ASSERT_EQ(Ask(pool, shop, {.step = step, .units = 10, .at_once = 4}).listener->Wait(), End::kReady);
    MutexLock lock(shop.mutex);
    ASSERT_EQ(shop.ran.size(), 10);
    std::map<size_t, std::thread::id> thread;
    for (const auto& [unit, id] : shop.ran)
      EXPECT_TRUE(thread.emplace(unit, id).second) << "unit " << unit << " ran twice";
    for (size_t unit = 0; unit < 10; ++unit) EXPECT_EQ(thread[unit], thread[unit / 4 * 4]) << unit;
    shop.ran.clear();
  }
}

TEST(PartPool, EndsAPartWithItsFirstFailedUnitOfARow) {
  Shop shop;
  PartPool pool({.num_threads = 2, .kept_bytes = 0}, nullptr);
  const TaskSpec spec{.step = 1, .units = 10, .at_once = 100, .kind = TaskSpec::kFails};
  EXPECT_EQ(Ask(pool, shop, spec).listener->Wait(), End::kFailed);
  MutexLock lock(shop.mutex);
  EXPECT_EQ(shop.ran.size(), 1) << "the rest would be for nothing";
}

TEST(PartPool, TurnsToTheLowestStepFirst) {
  Shop shop;
  shop.SetOpen(false);
  PartPool pool({.num_threads = 1}, nullptr);
  std::vector<Asked> all = {Ask(pool, shop, {.step = 50})};
  shop.WaitForUnits(1);  // the only thread is busy now
  for (uint64_t step : {7, 3, 9, 1, 3})
    all.push_back(Ask(pool, shop, {.step = step, .rank = uint32_t(all.size())}));
  EXPECT_EQ(all[1].answer.queue, 0);
  EXPECT_EQ(all[3].answer.queue, 2) << "steps 3 and 7 are ahead";
  EXPECT_EQ(all[4].answer.queue, 0);
  shop.SetOpen(true);
  for (const Asked& asked : all) EXPECT_EQ(asked.listener->Wait(), End::kReady);
  EXPECT_THAT(shop.order(), ElementsAre(50, 1, 3, 3, 7, 9));
}

TEST(PartPool, LeavesALargePartForAnEarlierStep) {
  Shop shop;
  shop.SetOpen(false);
  PartPool pool({.num_threads = 1, .kept_bytes = 0}, nullptr);
  const Asked large = Ask(pool, shop, {.step = 5, .units = 50});
  shop.WaitForUnits(1);
  const Asked urgent = Ask(pool, shop, {.step = 1});
  shop.SetOpen(true);
  EXPECT_EQ(urgent.listener->Wait(), End::kReady);
  EXPECT_EQ(large.listener->Wait(), End::kReady);
}

TEST(PartPool, SharesOneProductionAmongAllWhoAskForThePart) {
  Shop shop;
  shop.SetOpen(false);
  PartPool pool({.num_threads = 2}, nullptr);
  std::vector<Asked> all;
  for (int i = 0; i < 5; ++i) all.push_back(Ask(pool, shop, {.step = 4}));
  shop.SetOpen(true);
  for (const Asked& asked : all) ASSERT_EQ(asked.listener->Wait(), End::kReady);
  EXPECT_EQ(shop.order().size(), 1);
  const Asked later = Ask(pool, shop, {.step = 4});
  EXPECT_NE(later.answer.ready, nullptr) << "it is kept for those who ask again";
  EXPECT_EQ(shop.order().size(), 1);
}

TEST(PartPool, KeepsReadyPartsWithinTheirBudget) {
  Shop shop;
  PartPool pool({.num_threads = 1, .kept_bytes = 5 * Held(100) / 2}, nullptr);
  for (uint64_t step : {1, 2, 3}) ASSERT_EQ(Ask(pool, shop, {.step = step}).listener->Wait(), End::kReady);
  EXPECT_EQ(Ask(pool, shop, {.step = 1}).answer.ready, nullptr) << "the oldest was forgotten";
  EXPECT_NE(Ask(pool, shop, {.step = 3}).answer.ready, nullptr);
}

// Makes parts of steps 0 to `count` - 1, one after the other, each kept.
void MakeKept(PartPool& pool, Shop& shop, uint64_t count, uint64_t bytes) {
  for (uint64_t step = 0; step < count; ++step) {
    const Asked asked = Ask(pool, shop, {.step = step, .bytes = bytes});
    ASSERT_EQ(asked.listener->Wait(), End::kReady);
  }
}

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// CPU seconds of this thread for 20,000 requests, oldest kept first, with `kept` parts kept.
double SecondsOfRequests(uint64_t kept) {
  Shop shop;
  PartPool pool({.num_threads = 1, .budget_bytes = 4ull << 30, .kept_bytes = 1ull << 30}, nullptr);
  MakeKept(pool, shop, kept, 100);
  EXPECT_EQ(pool.stats().ready, kept);
  const double begin = CpuSeconds();
  for (uint64_t i = 0; i < 20000; ++i) {
    EXPECT_NE(Ask(pool, shop, {.step = i % kept}).answer.ready, nullptr);
  }
  return CpuSeconds() - begin;
}

// A search through the kept parts is a hundred times as long with a hundred times as many. Twenty times
// leaves room for the caches of a busy machine.
TEST(PartPool, ARequestIsAsFastWithFiftyThousandKeptPartsAsWithFew) {
  const double few = SecondsOfRequests(500), many = SecondsOfRequests(50000);
  EXPECT_LT(many, 20 * few);
}

TEST(PartPool, ForgettingTheOldestOfManyKeptPartsFindsTheRest) {
  Shop shop;
  PartPool pool({.num_threads = 1, .kept_bytes = 1000 * Held(100)}, nullptr);
  MakeKept(pool, shop, 3000, 100);
  EXPECT_EQ(pool.stats().ready, 1000);
  EXPECT_EQ(pool.stats().bytes.ready, 1000 * Held(100));
  for (uint64_t step = 2000; step < 3000; ++step) {
    EXPECT_NE(Ask(pool, shop, {.step = step}).answer.ready, nullptr) << step;
  }
}

#ifndef EVENKEEL_SANITIZED
// Sanitizers bring an allocator of their own.

TEST(PartPool, CountsWhatTheAllocatorHoldsForSmallParts) {
  for (const uint64_t bytes : {500, 2000, 9300, 20000}) {
    Shop shop;
    PartPool pool({.num_threads = 1, .kept_bytes = 1ull << 30}, nullptr);
    MakeKept(pool, shop, 10, bytes);
    const auto used = [] {
      const struct mallinfo2 info = mallinfo2();
      return info.uordblks + info.hblkhd;
    };
    const uint64_t used_before = used(), counted_before = pool.stats().bytes.ready;
    for (uint64_t step = 10; step < 3010; ++step) {
      ASSERT_EQ(Ask(pool, shop, {.step = step, .bytes = bytes}).listener->Wait(), End::kReady);
    }
    const auto held = static_cast<double>(used() - used_before);
    const auto counted = static_cast<double>(pool.stats().bytes.ready - counted_before);
    EXPECT_GE(counted, held) << bytes;
    EXPECT_LE(counted, held + 3000 * 512.0) << bytes;
    EXPECT_LE(held, 3000.0 * static_cast<double>(bytes + 512))
        << bytes << ": a block is not a page longer than its part";
  }
}

TEST(PartPool, TheHeapIsHardlyLargerThanTheKeptPartsAfterManyWereReplaced) {
  Shop shop;
  PartPool pool({.num_threads = 1, .kept_bytes = 30ull << 20}, nullptr);
  const auto heap = [] {
    const struct mallinfo2 info = mallinfo2();
    return static_cast<double>(info.arena + info.hblkhd);
  };
  const double before = heap();
  MakeKept(pool, shop, 12000, 9300);  // four times what is kept
  EXPECT_LE(heap() - before, 1.3 * static_cast<double>(pool.stats().bytes.ready));
}
#endif

TEST(PartPool, RefusesWhatDoesNotFitBesideWorkThatIsAsUrgent) {
  Shop shop;
  shop.SetOpen(false);
  PartPool pool({.num_threads = 1, .budget_bytes = 5 * Held(100) / 2}, nullptr);
  const Asked first = Ask(pool, shop, {.step = 1, .rank = 0}),
              second = Ask(pool, shop, {.step = 1, .rank = 1});
  const Asked third = Ask(pool, shop, {.step = 1, .rank = 2});
  EXPECT_TRUE(second.answer.accepted);
  EXPECT_FALSE(third.answer.accepted);
  EXPECT_GT(third.answer.retry_after, absl::ZeroDuration());
  shop.SetOpen(true);
  EXPECT_EQ(second.listener->Wait(), End::kReady);
}

TEST(PartPool, DropsTheHighestStepFirstToMakeRoomForALowerOne) {
  Shop shop;
  shop.SetOpen(false);
  PartPool pool({.num_threads = 1, .budget_bytes = 4 * Held(100)}, nullptr);
  const Asked busy = Ask(pool, shop, {.step = 9});
  shop.WaitForUnits(1);
  const Asked a = Ask(pool, shop, {.step = 5}), b = Ask(pool, shop, {.step = 7}),
              c = Ask(pool, shop, {.step = 6});
  const Asked low = Ask(pool, shop, {.step = 2});
  EXPECT_TRUE(low.answer.accepted);
  EXPECT_EQ(b.listener->Wait(), End::kDropped);
  EXPECT_EQ(busy.listener->end(), End::kNone) << "what was begun is finished";
  const Asked high = Ask(pool, shop, {.step = 8});
  EXPECT_FALSE(high.answer.accepted) << "nothing is dropped for a higher step";
  shop.SetOpen(true);
  for (const Asked* asked : {&busy, &a, &c, &low}) EXPECT_EQ(asked->listener->Wait(), End::kReady);
}

TEST(PartPool, CountsMemoryUntilTheLastOwnerLetsGo) {
  Shop shop;
  PartPool pool({.num_threads = 1, .budget_bytes = 3 * Held(100) / 2, .kept_bytes = 0}, nullptr);
  const Asked first = Ask(pool, shop, {.step = 1});
  ASSERT_EQ(first.listener->Wait(), End::kReady);
  std::shared_ptr<const ReadyPart> held = first.listener->TakePart();
  EXPECT_FALSE(Ask(pool, shop, {.step = 0}).answer.accepted) << "still on the wire";
  EXPECT_EQ(pool.stats().bytes.in_flight, Held(100));
  held.reset();
  // The thread that called the listener lets go a moment later.
  while (pool.stats().bytes.in_flight > 0) std::this_thread::yield();
  EXPECT_TRUE(Ask(pool, shop, {.step = 0}).answer.accepted);
}

TEST(PartPool, CountsTheScratchOfUnitsThatRunAtOnce) {
  Shop shop;
  const uint64_t budget = Held(128) + 2 * 50;
  PartPool pool({.num_threads = 2, .budget_bytes = budget}, nullptr);
  const FakeTask fits(shop, {.bytes = 128, .units = 9, .scratch = 50}),
      not_fits(shop, {.bytes = 129, .units = 9, .scratch = 50});
  EXPECT_TRUE(pool.CheckFits(fits).ok());
  const absl::Status status = pool.CheckFits(not_fits);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(status.message()),
      testing::AllOf(HasSubstr("129 bytes"), HasSubstr(std::to_string(budget)), HasSubstr("--memory")));
}

TEST(PartPool, DropsWorkThatNobodyWaitsFor) {
  Shop shop;
  shop.SetOpen(false);
  PartPool pool({.num_threads = 1, .budget_bytes = 7 * Held(100) / 2}, nullptr);
  const Asked busy = Ask(pool, shop, {.step = 1});
  shop.WaitForUnits(1);
  const Asked unwanted = Ask(pool, shop, {.step = 2}), half = Ask(pool, shop, {.step = 3}),
              other = Ask(pool, shop, {.step = 3});
  pool.Cancel(unwanted.answer.ticket);
  pool.Cancel(half.answer.ticket);
  EXPECT_TRUE(Ask(pool, shop, {.step = 4}).answer.accepted) << "its memory is free again";
  shop.SetOpen(true);
  EXPECT_EQ(other.listener->Wait(), End::kReady);
  EXPECT_TRUE(pool.Drain(absl::Seconds(60)));
  EXPECT_THAT(shop.order(), ElementsAre(1, 3, 4));
  EXPECT_EQ(unwanted.listener->end(), End::kNone);
  EXPECT_EQ(half.listener->end(), End::kNone);
}

TEST(PartPool, CancelsAPartWhileItIsMadeAndMakesItAgainWhenAsked) {
  Shop shop;
  shop.SetOpen(false);
  PartPool pool({.num_threads = 1, .kept_bytes = 0}, nullptr);
  const Asked first = Ask(pool, shop, {.step = 1, .units = 5});
  shop.WaitForUnits(1);
  pool.Cancel(first.answer.ticket);
  const Asked again = Ask(pool, shop, {.step = 1, .units = 5});
  shop.SetOpen(true);
  EXPECT_EQ(again.listener->Wait(), End::kReady);
  EXPECT_EQ(shop.order().size(), 2);
}

TEST(PartPool, HandsAFailedAttemptToAllWhoWait) {
  Shop shop;
  PartPool pool({.num_threads = 2, .kept_bytes = 0}, nullptr);
  const Asked failing = Ask(pool, shop, {.step = 1, .units = 4, .kind = TaskSpec::kFails});
  EXPECT_EQ(failing.listener->Wait(), End::kFailed);
  EXPECT_EQ(failing.listener->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(stream::ExcludeLine(failing.listener->status()), "a/b/c");
  const Asked throwing = Ask(pool, shop, {.step = 1, .units = 4, .kind = TaskSpec::kThrows});
  EXPECT_EQ(throwing.listener->Wait(), End::kFailed);
  EXPECT_EQ(throwing.listener->status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Ask(pool, shop, {.step = 1, .units = 4}).listener->Wait(), End::kReady)
      << "an attempt may be repeated";
}

TEST(PartPool, ReportsProgressOfQueuedWorkWhileTheWorkerWorks) {
  Shop shop;
  shop.SetOpen(false);
  PartPool pool({.num_threads = 1, .progress_interval = absl::Milliseconds(2)}, nullptr);
  const Asked busy = Ask(pool, shop, {.step = 1, .units = 1});
  shop.WaitForUnits(1);
  const Asked next = Ask(pool, shop, {.step = 2, .units = 1});
  const Asked queued = Ask(pool, shop, {.step = 3, .units = 1});
  queued.listener->WaitForReports(2);
  EXPECT_EQ(queued.listener->stage(), "queued");
  EXPECT_EQ(busy.listener->stage(), "producing");
  shop.SetOpen(true);
  EXPECT_EQ(queued.listener->Wait(), End::kReady);
}

TEST(PartPool, GivesNoProgressToWorkThatHangs) {
  Shop shop;
  shop.SetOpen(false);
  PartPool pool({.num_threads = 1, .progress_interval = absl::Milliseconds(2)}, nullptr);
  class Watcher : public Listener {
   public:
    void OnProgress(std::string_view, uint64_t done, uint64_t) override {
      if (reports++ == 0) first = done;
      last = done;
    }
    std::atomic<uint64_t> first{0}, last{0};
    std::atomic<int> reports{0};
  };
  auto watcher = std::make_shared<Watcher>();
  pool.Request(std::make_unique<FakeTask>(shop, TaskSpec{.step = 1}), watcher);
  shop.WaitForUnits(1);
  const int before = watcher->reports;
  while (watcher->reports < before + 20) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(watcher->first, watcher->last);
  shop.SetOpen(true);
  EXPECT_EQ(watcher->Wait(), End::kReady);
}

TEST(PartPool, BoundsTheNumberOfRequests) {
  Shop shop;
  shop.SetOpen(false);
  PartPool pool({.num_threads = 1, .max_requests = 2}, nullptr);
  const Asked a = Ask(pool, shop, {.step = 1}), b = Ask(pool, shop, {.step = 2});
  EXPECT_FALSE(Ask(pool, shop, {.step = 0}).answer.accepted);
  shop.SetOpen(true);
  EXPECT_EQ(b.listener->Wait(), End::kReady);
}

TEST(PartPool, FinishesWhatItAcceptedWhenItDrains) {
  Shop shop;
  shop.SetOpen(false);
  PartPool pool({.num_threads = 1}, nullptr);
  const Asked a = Ask(pool, shop, {.step = 1}), b = Ask(pool, shop, {.step = 2});
  EXPECT_FALSE(pool.Drain(absl::Milliseconds(1)));
  EXPECT_FALSE(Ask(pool, shop, {.step = 3}).answer.accepted);
  shop.SetOpen(true);
  EXPECT_TRUE(pool.Drain(absl::Seconds(60)));
  EXPECT_EQ(a.listener->Wait(), End::kReady);
  EXPECT_EQ(b.listener->Wait(), End::kReady);
}

TEST(PartPool, TellsWhoStillWaitsWhenItStops) {
  Shop shop;
  shop.SetOpen(false);
  PartPool pool({.num_threads = 1}, nullptr);
  const Asked a = Ask(pool, shop, {.step = 1, .units = 3}), b = Ask(pool, shop, {.step = 2});
  shop.WaitForUnits(1);
  std::thread stop([&] { pool.Stop(); });
  shop.SetOpen(true);
  stop.join();
  EXPECT_NE(a.listener->Wait(), End::kNone);
  EXPECT_NE(b.listener->Wait(), End::kNone);
}

// Many threads ask, cancel and let go at random: every request ends once, and no byte is leaked.
TEST(PartPool, EndsEveryRequestOnceUnderAStorm) {
  Shop shop;
  PartPool pool({.num_threads = 3,
                 .budget_bytes = 20 * Held(100),
                 .kept_bytes = 3 * Held(100),
                 .progress_interval = absl::Milliseconds(1)},
                nullptr);
  std::atomic<int> ready{0}, other{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(thread);
      for (int i = 0; i < 150; ++i) {
        TaskSpec spec{
            .step = random() % 20, .rank = uint32_t(random() % 3), .bytes = 100, .units = 1 + random() % 4};
        if (random() % 10 == 0) spec.kind = TaskSpec::kFails;
        const Asked asked = Ask(pool, shop, spec);
        if (asked.answer.ready != nullptr) {
          ++ready;
        } else if (!asked.answer.accepted) {
          ++other;
        } else if (random() % 4 == 0) {
          pool.Cancel(asked.answer.ticket);
          ++other;
        } else {
          ++(asked.listener->Wait() == End::kReady ? ready : other);
        }
        EXPECT_LE(pool.stats().bytes.queued + pool.stats().bytes.ready, 20 * Held(100));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ready + other, 600);
  EXPECT_GT(ready, 0);
  EXPECT_TRUE(pool.Drain(absl::Seconds(60)));
}

}  // namespace
}  // namespace evenkeel::server
