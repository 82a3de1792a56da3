// Workers that stood still once, and are asked again on trial.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/time/clock.h"
#include "client/consumer.h"
#include "core/steady_time.h"
#include "tests/client/fake_worker.h"
#include "tests/usual_phases.h"

namespace evenkeel::client {
namespace {

using Kind = Behaviour::Kind;

#ifdef EVENKEEL_SANITIZED
constexpr int kPatience = 5;
#else
constexpr int kPatience = 1;
#endif

const absl::Duration kTimeout = kPatience * absl::Milliseconds(600);
const absl::Duration kPartTime = kPatience * absl::Milliseconds(20);

// One worker of three is under test; the two others serve every part within kPartTime.
class Trials : public testing::Test {
 protected:
  void Connect(std::function<Behaviour(const PartName&)> behave) {
    FakeWorkerOptions made;
    made.behave = [behave](const PartName& name, uint32_t) { return behave(name); };
    tested_ = std::make_unique<FakeWorker>(made);
    made.behave = [](const PartName&, uint32_t) { return Behaviour{Kind::kSlow, kPartTime}; };
    others_[0] = std::make_unique<FakeWorker>(made);
    others_[1] = std::make_unique<FakeWorker>(made);
    ConsumerOptions options;
    options.endpoints = tested_->endpoint() + "," + others_[0]->endpoint() + "," + others_[1]->endpoint();
    options.prefetch_steps = 1;  // so that every trial is one of the head step
    options.progress_timeout = kTimeout;
    options.step_timeout = absl::Minutes(3);
    options.connect_timeout = absl::Seconds(20);
    options.log = [](const std::string&) {};
    auto consumer = Consumer::Connect(options);
    ASSERT_TRUE(consumer.ok()) << consumer.status();
    consumer_ = *std::move(consumer);
  }
  void Step() {
    auto step = consumer_->Next();
    ASSERT_TRUE(step.ok()) << step.status();
  }

  // What behave() reads; declared before the workers, whose threads may call it until they are destroyed.
  std::atomic<bool> stands_still_ = true;
  std::mutex mutex_;
  std::vector<absl::Time> asked_;
  std::unique_ptr<FakeWorker> tested_, others_[2];
  std::unique_ptr<Consumer> consumer_;
};

// It takes four times as long as the others and reports nothing meanwhile.
TEST_F(Trials, AWorkerThatIsOnlySlowIsTrustedAgain) {
  ASSERT_NO_FATAL_FAILURE(Connect([this](const PartName&) {
    return stands_still_ ? Behaviour{Kind::kStuck} : Behaviour{Kind::kQuiet, 4 * kPartTime};
  }));
  const absl::Time end = absl::Now() + absl::Minutes(2);
  while (consumer_->stats().grey_workers == 0 && absl::Now() < end) Step();
  ASSERT_EQ(consumer_->stats().grey_workers, 1);
  stands_still_ = false;
  // A trusted worker is asked in its turn: 30 requests in a row, about 10 steps apart at most.
  int served = tested_->requests(), steps = 0;
  for (int in_turn = 0; in_turn < 30 && absl::Now() < end; ++steps) {
    Step();
    const int now_served = tested_->requests();
    in_turn = now_served > served ? in_turn + now_served - served : steps % 4 == 3 ? 0 : in_turn;
    served = now_served;
  }
  EXPECT_LT(absl::Now(), end) << "still asked last after " << steps << " steps";
  EXPECT_EQ(consumer_->stats().grey_workers, 0);
}

TEST_F(Trials, AWorkerThatStandsStillAgainIsAskedLaterEachTime) {
  ASSERT_NO_FATAL_FAILURE(Connect([this](const PartName& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (name.phase != kVisionPhase) return Behaviour{Kind::kSlow, kPartTime};
    asked_.push_back(SteadyNow());
    return Behaviour{Kind::kStuck};
  }));
  constexpr size_t kRequests = 5;
  const absl::Time end = SteadyNow() + absl::Minutes(2);
  auto count = [this] {
    std::lock_guard<std::mutex> lock(mutex_);
    return asked_.size();
  };
  while (count() < kRequests && SteadyNow() < end) Step();
  ASSERT_GE(count(), kRequests) << "it is not given up for ever";
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 1; i < kRequests; ++i) EXPECT_GE(asked_[i] - asked_[i - 1], kTimeout * (1 << (i - 1))) << i;
}

}  // namespace
}  // namespace evenkeel::client
