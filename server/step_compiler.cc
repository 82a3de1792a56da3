// One thread that does one slice of work at a time, for steps that were requested recently.
#include "server/step_compiler.h"

#include <utility>

#include "core/steady_time.h"

namespace evenkeel::server {

StepCompiler::StepCompiler(Extend extend, absl::Duration lease) : extend_(std::move(extend)), lease_(lease) {}

absl::Status StepCompiler::Want(uint64_t step) {
  MutexLock lock(mutex_);
  if (stopping_) return absl::CancelledError("the worker is stopping");
  Wanted& wanted = wanted_[step];
  wanted.until = SteadyNow() + lease_;
  absl::Status failed = std::exchange(wanted.failed, absl::OkStatus());
  if (wanted_.size() > kMaxWanted) wanted_.erase(std::prev(wanted_.end()));
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  changed_.NotifyAll();
  return failed;
}

std::map<uint64_t, StepCompiler::Wanted>::iterator StepCompiler::Next(absl::Time now) {
  std::erase_if(wanted_, [now](const auto& entry) { return entry.second.until < now; });
  auto next = wanted_.begin();
  while (next != wanted_.end() && !next->second.failed.ok()) ++next;
  return next;
}

void StepCompiler::Run() {
  while (const std::optional<uint64_t> step = TakeNext()) Record(*step, extend_(*step));
}

std::optional<uint64_t> StepCompiler::TakeNext() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (const auto next = Next(SteadyNow()); next != wanted_.end()) return next->first;
    changed_.Wait(mutex_);
  }
  return std::nullopt;
}

void StepCompiler::Record(uint64_t step, const absl::StatusOr<bool>& reached) {
  MutexLock lock(mutex_);
  const auto worked_on = wanted_.find(step);
  if (worked_on == wanted_.end()) return;
  if (!reached.ok()) {
    worked_on->second.failed = reached.status();
  } else if (*reached) {
    wanted_.erase(worked_on);
  }
}

void StepCompiler::Stop() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
    thread.swap(thread_);
  }
  if (thread.joinable()) thread.join();
}

}  // namespace evenkeel::server
