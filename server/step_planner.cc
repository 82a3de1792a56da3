// Computes each plan once for all threads that request it, and the next steps in advance.
#include "server/step_planner.h"

#include <algorithm>
#include <utility>

#include "core/max_over_mean.h"
#include "core/steady_time.h"

namespace evenkeel::server {
namespace {

// At most this many plans are queued ahead; the lowest steps are dropped first, since consumers have passed
// them.
constexpr size_t kMaxAhead = 256;

}  // namespace

StepPlanner::StepPlanner(Source source, Options options, telemetry::Metrics* metrics)
    : source_(std::move(source)), options_(options), metrics_(metrics) {
  for (uint32_t i = 0; i < std::max(1u, options_.num_threads); ++i) threads_.emplace_back([this] { Run(); });
}

void StepPlanner::Stop() {
  std::map<uint64_t, std::vector<Ready>> abandoned;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    abandoned.swap(waiting_);
    num_waiting_ = 0;
    work_.NotifyAll();
  }
  for (auto& [step, callbacks] : abandoned) {
    for (Ready& ready : callbacks) ready(absl::CancelledError("the planner is stopping"));
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void StepPlanner::Get(uint64_t step, Ready ready) {
  absl::StatusOr<PlanPtr> answer = PlanPtr();
  {
    MutexLock lock(mutex_);
    PlanPtr plan = Find(step);
    if (plan == nullptr && stopping_) {
      answer = absl::CancelledError("the planner is stopping");
    } else if (plan == nullptr && num_waiting_ >= options_.max_waiting) {
      answer = absl::ResourceExhaustedError("too many requests wait for plans; try again");
    } else if (plan == nullptr) {
      waiting_[step].push_back(std::move(ready));
      ++num_waiting_;
      ahead_.erase(step);
      if (running_.count(step) == 0) wanted_.insert(step);
      work_.NotifyOne();
      return;
    } else {
      PlanAhead(step);
      answer = std::move(plan);
    }
  }
  ready(std::move(answer));
}

absl::StatusOr<StepPlanner::PlanPtr> StepPlanner::Wait(uint64_t step) {
  struct Answer {
    Mutex mutex;
    CondVar arrived;
    bool done ABSL_GUARDED_BY(mutex) = false;
    absl::StatusOr<PlanPtr> plan ABSL_GUARDED_BY(mutex) = PlanPtr();
  };
  auto answer = std::make_shared<Answer>();
  Get(step, [answer](absl::StatusOr<PlanPtr> plan) {
    MutexLock lock(answer->mutex);
    answer->plan = std::move(plan);
    answer->done = true;
    answer->arrived.NotifyAll();
  });
  MutexLock lock(answer->mutex);
  while (!answer->done) answer->arrived.Wait(answer->mutex);
  return answer->plan;
}

uint64_t StepPlanner::cached_bytes() const {
  MutexLock lock(mutex_);
  return kept_bytes_;
}

uint64_t StepPlanner::num_computed() const {
  MutexLock lock(mutex_);
  return num_computed_;
}

void StepPlanner::Run() {
  for (;;) {
    uint64_t step = 0;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && wanted_.empty() && ahead_.empty()) work_.Wait(mutex_);
      if (stopping_) return;
      step = TakeNext();
    }
    const absl::Time begin = SteadyNow();
    absl::StatusOr<stream::StepPlan> computed = source_(step);
    absl::StatusOr<PlanPtr> plan =
        computed.ok()
            ? absl::StatusOr<PlanPtr>(std::make_shared<const stream::StepPlan>(*std::move(computed)))
            : computed.status();
    if (plan.ok()) ReportNew(**plan, SteadyNow() - begin);
    std::vector<Ready> callbacks;
    {
      MutexLock lock(mutex_);
      running_.erase(step);
      ++num_computed_;
      if (auto waiting = waiting_.find(step); waiting != waiting_.end()) {
        callbacks = std::move(waiting->second);
        waiting_.erase(waiting);
        num_waiting_ -= callbacks.size();
      }
      if (plan.ok()) Keep(step, *plan);
      if (plan.ok() && !callbacks.empty()) PlanAhead(step);
    }
    for (Ready& ready : callbacks) ready(plan);
  }
}

uint64_t StepPlanner::TakeNext() {
  std::set<uint64_t>& queue = wanted_.empty() ? ahead_ : wanted_;
  const uint64_t step = *queue.begin();
  queue.erase(queue.begin());
  running_.insert(step);
  return step;
}

StepPlanner::PlanPtr StepPlanner::Find(uint64_t step) {
  auto found = kept_.find(step);
  if (found == kept_.end()) return nullptr;
  recent_.splice(recent_.begin(), recent_, found->second.recent);
  return found->second.plan;
}

void StepPlanner::Keep(uint64_t step, PlanPtr plan) {
  if (kept_.count(step) != 0) return;
  const uint64_t bytes = stream::StepPlanBytes(*plan);
  recent_.push_front(step);
  kept_.emplace(step, Kept{.plan = std::move(plan), .bytes = bytes, .recent = recent_.begin()});
  kept_bytes_ += bytes;
  // Evicts the least recently used plans, but never the one just added.
  const size_t max_plans = size_t{options_.max_plans} + 2 * size_t{options_.steps_ahead};
  while ((kept_bytes_ > options_.cache_bytes || recent_.size() > max_plans) && recent_.size() > 1) {
    auto oldest = kept_.find(recent_.back());
    kept_bytes_ -= oldest->second.bytes;
    kept_.erase(oldest);
    recent_.pop_back();
  }
}

void StepPlanner::PlanAhead(uint64_t step) {
  for (uint64_t ahead = 1; ahead <= options_.steps_ahead; ++ahead) {
    const uint64_t next = step + ahead;
    if (next < step) return;  // the sum has overflowed
    if (kept_.count(next) == 0 && running_.count(next) == 0 && waiting_.count(next) == 0) ahead_.insert(next);
  }
  while (ahead_.size() > kMaxAhead) ahead_.erase(ahead_.begin());
  if (!ahead_.empty()) work_.NotifyOne();
}

void StepPlanner::ReportNew(const stream::StepPlan& plan, absl::Duration duration) {
  if (metrics_ == nullptr) return;
  metrics_->ObserveStage(telemetry::Stage::kPlan, duration);
  for (const PhasePlan& phase : plan.plan.phases) {
    metrics_->SetImbalance(phase.phase, MaxOverMean(phase.load_before), MaxOverMean(phase.load_after));
  }
}

}  // namespace evenkeel::server
