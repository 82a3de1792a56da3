#include "server/decoder_pool.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/status.h"
#include "server/decoder_sandbox.h"
#include "server/event_log.h"
#include "server/remote_work.h"

namespace evenkeel {
namespace {

// How often a running decoder's CPU time is looked at.
constexpr int kLookMilliseconds = 10;

absl::Duration CpuTime(clockid_t clock) {
  timespec time{};
  return clock_gettime(clock, &time) == 0 ? absl::DurationFromTimespec(time) : absl::ZeroDuration();
}

// From what waitpid says of a process that ended by itself.
std::string ReasonOf(int status) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) return "forbidden_call";
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return "killed";
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExitNoMemory) return "memory";
  return "crash";
}

std::string Describe(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = strsignal(WTERMSIG(status));
    return absl::StrCat("signal ", WTERMSIG(status), ", ", name == nullptr ? "" : name);
  }
  return absl::StrCat("exit code ", WEXITSTATUS(status));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderPool>> DecoderPool::Start(const Processor& processor,
                                                                const Options& options) {
  EVENKEEL_ASSIGN_OR_RETURN(auto spawner, DecoderSpawner::Start(processor, options.memory_bytes));
  std::unique_ptr<DecoderPool> pool(new DecoderPool(options, std::move(spawner)));
  EVENKEEL_ASSIGN_OR_RETURN(Child first, pool->Take());  // so that what forbids decoders shows now
  pool->GiveBack(std::move(first));
  return pool;
}

absl::StatusOr<DecoderPool::Child> DecoderPool::Take() {
  {
    MutexLock lock(mutex_);
    if (!idle_.empty()) {
      Child child = std::move(idle_.back());
      idle_.pop_back();
      return child;
    }
  }
  return spawner_->Spawn();
}

void DecoderPool::GiveBack(Child child) {
  MutexLock lock(mutex_);
  idle_.push_back(std::move(child));
}

std::string DecoderPool::WaitForReply(const Child& child, absl::Duration cpu_budget) const {
  clockid_t clock = CLOCK_MONOTONIC;
  if (clock_getcpuclockid(child.pid, &clock) != 0) return "crash";
  const absl::Duration begin = CpuTime(clock);
  absl::Duration seen = begin;
  absl::Time moved = absl::Now();
  for (;;) {
    pollfd socket{child.socket.get(), POLLIN, 0};
    if (poll(&socket, 1, kLookMilliseconds) > 0) return "";
    const absl::Duration now = CpuTime(clock);
    if (now > seen) {
      RemoteWork() += static_cast<uint64_t>(absl::ToInt64Nanoseconds(now - seen));
      seen = now;
      moved = absl::Now();
    }
    if (seen - begin > cpu_budget) return "cpu";
    if (absl::Now() - moved > options_.still) return "still";
  }
}

absl::Status DecoderPool::Replace(Child child, std::string reason) {
  absl::StatusOr<int> ended = spawner_->End(child.pid);
  if (!ended.ok()) return ended.status();
  const std::string how = Describe(*ended);
  if (reason.empty()) reason = ReasonOf(*ended);
  ++num_replaced_;
  if (Metrics* metrics = metrics_; metrics != nullptr) metrics->CountDecoderRestart(reason);
  LogEvent(LogLevel::kWarning, "decoder_replaced", {{"reason", reason}, {"ended", how}});
  absl::StatusOr<Child> next = spawner_->Spawn();  // ready for the next item
  if (next.ok()) GiveBack(*std::move(next));
  return absl::InternalError(absl::StrCat("the decoder process was replaced: ", reason, " (", how, ")"));
}

absl::Status DecoderPool::Run(const DecoderCall& call, std::span<const int> files, absl::Duration cpu_budget,
                              DecoderReply* reply) {
  EVENKEEL_ASSIGN_OR_RETURN(Child child, Take());
  if (!SendMessage(child.socket.get(), call, files).ok()) {
    // It ended while it was idle: not by this item.
    (void)Replace(std::move(child), "");
    EVENKEEL_ASSIGN_OR_RETURN(child, Take());
    EVENKEEL_RETURN_IF_ERROR(SendMessage(child.socket.get(), call, files));
  }
  std::string reason = WaitForReply(child, cpu_budget);
  if (!reason.empty() || !ReceiveMessage(child.socket.get(), reply).ok()) {
    return Replace(std::move(child), std::move(reason));
  }
  GiveBack(std::move(child));
  return reply->status();
}

}  // namespace evenkeel
