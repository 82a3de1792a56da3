// Watches the CPU time of a process that works for this one, and names the reason of its end.
#include "isolation/child_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/steady_time.h"
#include "isolation/decoder_sandbox.h"
#include "isolation/remote_work.h"

namespace evenkeel::isolation {
namespace {

// Interval between two checks of a running process's CPU time.
constexpr int kLookMilliseconds = 10;

absl::Duration CpuTime(clockid_t clock) {
  timespec time{};
  return clock_gettime(clock, &time) == 0 ? absl::DurationFromTimespec(time) : absl::ZeroDuration();
}

}  // namespace

std::string WaitForReply(pid_t pid, int socket, absl::Duration cpu_budget, absl::Duration still,
                         const std::atomic<bool>& abandoned) {
  clockid_t clock = CLOCK_MONOTONIC;
  if (clock_getcpuclockid(pid, &clock) != 0) return "crash";
  const absl::Duration begin = CpuTime(clock);
  absl::Duration seen = begin;
  absl::Duration own_seen = CpuTime(CLOCK_THREAD_CPUTIME_ID);
  absl::Time moved = SteadyNow();
  for (;;) {
    pollfd one{socket, POLLIN, 0};
    if (poll(&one, 1, kLookMilliseconds) > 0) return "";
    const absl::Duration now = CpuTime(clock);
    // The checks cost this thread some CPU time, which must not count as work on the item.
    const absl::Duration own = CpuTime(CLOCK_THREAD_CPUTIME_ID);
    RemoteWork() -= static_cast<uint64_t>(absl::ToInt64Nanoseconds(own - own_seen));
    own_seen = own;
    if (now > seen) {
      RemoteWork() += static_cast<uint64_t>(absl::ToInt64Nanoseconds(now - seen));
      seen = now;
      moved = SteadyNow();
    }
    if (seen - begin > cpu_budget) return "cpu";
    if (SteadyNow() - moved > still) return "still";
    if (abandoned) return "abandoned";
  }
}

std::string ReasonOf(int wait_status) {
  if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGSYS) return "forbidden_call";
  if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL) return "killed";
  if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == kExitNoMemory) return "memory";
  return "crash";
}

bool IsStopped(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         absl::string_view("TtD").find(text[name_end + 2]) != absl::string_view::npos;
}

std::string DescribeEnd(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const char* name = strsignal(WTERMSIG(wait_status));
    return absl::StrCat("signal ", WTERMSIG(wait_status), ", ", name == nullptr ? "" : name);
  }
  return absl::StrCat("exit code ", WEXITSTATUS(wait_status));
}

absl::Status ReplacedError(const std::string& what, const std::string& reason, bool was_stopped) {
  // A process is killed or stopped by the machine or its owner, never by the item.
  if (reason == "killed" || was_stopped) return absl::UnavailableError(what);
  // No item makes its process stand still without using CPU time: it waits for memory that is swapped out.
  const absl::Status replaced = absl::InternalError(what);
  return reason == "still" ? WithKind(replaced, FailureKind::kMachine) : replaced;
}

absl::Status WaitUntilReadable(int socket, absl::Duration patience, std::string_view what) {
  const absl::Time deadline = SteadyNow() + patience;
  for (;;) {
    pollfd one{socket, POLLIN, 0};
    const int64_t left = std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline - SteadyNow()));
    const int ready = poll(&one, 1, static_cast<int>(left));
    if (ready == 1) return absl::OkStatus();
    if (ready == 0) {
      return absl::UnavailableError(
          absl::StrCat(std::string(what), " did not answer within ", absl::FormatDuration(patience)));
    }
    if (errno != EINTR) return absl::UnavailableError(absl::StrCat("poll: ", std::strerror(errno)));
  }
}

}  // namespace evenkeel::isolation
