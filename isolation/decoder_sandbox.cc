// The limits and the seccomp filter of a decoder process, set through libseccomp.
#include "isolation/decoder_sandbox.h"

#include <fcntl.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "isolation/decoder_message.h"

namespace evenkeel::isolation {
namespace {

constexpr rlim_t kMaxFiles = 16;

absl::Status CanNot(const char* what, int error) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot confine decoder processes: ", what, ": ", std::strerror(error)));
}

absl::Status LimitTo(__rlimit_resource resource, rlim_t most, const char* what) {
  const rlimit limit{most, most};
  return setrlimit(resource, &limit) == 0 ? absl::OkStatus() : CanNot(what, errno);
}

// Private writable memory in bytes, counted as RLIMIT_DATA counts it.
absl::StatusOr<uint64_t> DataBytes() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/self/statm", "re"), std::fclose);
  unsigned long size = 0, resident = 0, shared = 0, text = 0, lib = 0, data = 0;  // NOLINT: scanf's types
  if (file == nullptr || std::fscanf(file.get(), "%lu %lu %lu %lu %lu %lu", &size, &resident, &shared, &text,
                                     &lib, &data) != 6) {
    return absl::FailedPreconditionError(
        "cannot confine decoder processes: /proc/self/statm is missing or unreadable");
  }
  return uint64_t{data} * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// If the machine runs out of memory, the kernel should end a decoder and not the worker. Raising the score
// needs no privilege, and its failure does no harm.
void OfferToTheOomKiller() {
  const Handle file(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (file.get() >= 0) (void)!write(file.get(), "1000", 4);
}

// RLIMIT_DATA and not RLIMIT_AS: media and parts are shared mappings of the worker's memory, so the size of
// the address space does not show what a decoder allocates.
absl::Status LimitResources(uint64_t memory_bytes) {
  EVENKEEL_RETURN_IF_ERROR(LimitTo(RLIMIT_CORE, 0, "RLIMIT_CORE"));
  EVENKEEL_RETURN_IF_ERROR(LimitTo(RLIMIT_NOFILE, kMaxFiles, "RLIMIT_NOFILE"));
  if (!kConfinesFully) return absl::OkStatus();
  EVENKEEL_ASSIGN_OR_RETURN(const uint64_t now, DataBytes());
  return LimitTo(RLIMIT_DATA, now + memory_bytes, "RLIMIT_DATA");
}

// The system calls that decoding needs: memory, the files that it has, clocks, exit. abort() prints by
// `write`. qsort asks `sysinfo` for the size of the memory before it sorts more than a kilobyte, which FFmpeg
// does for files with over a hundred chapters. Calls that are allowed only with some arguments follow below.
constexpr int kAllowed[] = {
    SCMP_SYS(recvmsg),         SCMP_SYS(sendmsg),        SCMP_SYS(read),
    SCMP_SYS(write),           SCMP_SYS(writev),         SCMP_SYS(close),
    SCMP_SYS(munmap),          SCMP_SYS(madvise),        SCMP_SYS(brk),
    SCMP_SYS(futex),           SCMP_SYS(clock_gettime),  SCMP_SYS(gettimeofday),
    SCMP_SYS(getrandom),       SCMP_SYS(getpid),         SCMP_SYS(gettid),
    SCMP_SYS(rt_sigaction),    SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sysinfo),         SCMP_SYS(sched_yield),    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(restart_syscall), SCMP_SYS(exit),           SCMP_SYS(exit_group),
};

// What an interpreter asks in addition while it runs code that is loaded already: of files that it has, of
// time, of itself. It may not open a file.
constexpr int kAllowedInPython[] = {
    SCMP_SYS(lseek),
    SCMP_SYS(fstat),
    SCMP_SYS(fcntl),
    SCMP_SYS(ioctl),
    SCMP_SYS(poll),
    SCMP_SYS(pread64),
    SCMP_SYS(nanosleep),
    SCMP_SYS(getppid),
    SCMP_SYS(clock_getres),
    SCMP_SYS(getrusage),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getegid),
    SCMP_SYS(uname),
    SCMP_SYS(getcwd),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(getcpu),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(membarrier),
    SCMP_SYS(rseq),
    SCMP_SYS(times),
    SCMP_SYS(time),
    SCMP_SYS(set_robust_list),
};

using SeccompFilter = std::unique_ptr<void, void (*)(void*)>;

absl::Status Allow(const SeccompFilter& filter, std::span<const int> calls) {
  for (const int call : calls) {
    if (const int code = seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, call, 0); code != 0) {
      return CanNot("seccomp_rule_add", -code);
    }
  }
  return absl::OkStatus();
}

// No memory becomes executable, and no mapping grows.
absl::Status AllowMemory(const SeccompFilter& filter);

absl::Status Filter() {
  const SeccompFilter filter(seccomp_init(SCMP_ACT_KILL_PROCESS), seccomp_release);
  if (filter == nullptr) return CanNot("seccomp_init", ENOMEM);
  EVENKEEL_RETURN_IF_ERROR(Allow(filter, kAllowed));
  // abort() sends itself a signal by tgkill. Only itself: the worker runs as the same user.
  if (const int code = seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                                        SCMP_A0_32(SCMP_CMP_EQ, static_cast<uint32_t>(getpid()), 0u));
      code != 0) {
    return CanNot("seccomp_rule_add", -code);
  }
  EVENKEEL_RETURN_IF_ERROR(AllowMemory(filter));
  if (const int code = seccomp_load(filter.get()); code != 0) return CanNot("seccomp", -code);
  return absl::OkStatus();
}

absl::Status AllowMemory(const SeccompFilter& filter) {
  // A mapping that grows would reach the rest of a part's file without its descriptor. The C library grows
  // large blocks by mremap and copies them if that fails.
  if (const int code = seccomp_rule_add(filter.get(), SCMP_ACT_ERRNO(ENOMEM), SCMP_SYS(mremap), 0); code != 0)
    return CanNot("seccomp_rule_add", -code);
  for (const int call : {SCMP_SYS(mmap), SCMP_SYS(mprotect)}) {
    const int code =
        seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, call, 1, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
    if (code != 0) return CanNot("seccomp_rule_add", -code);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WritePythonFilter(int file) {
  // Libraries ask for much that they can do without, so a call that is not allowed fails and ends nothing.
  const SeccompFilter filter(seccomp_init(SCMP_ACT_ERRNO(EPERM)), seccomp_release);
  if (filter == nullptr) return CanNot("seccomp_init", ENOMEM);
  EVENKEEL_RETURN_IF_ERROR(Allow(filter, kAllowed));
  EVENKEEL_RETURN_IF_ERROR(Allow(filter, kAllowedInPython));
  EVENKEEL_RETURN_IF_ERROR(AllowMemory(filter));
  if (const int code = seccomp_export_bpf(filter.get(), file); code != 0)
    return CanNot("seccomp_export_bpf", -code);
  return absl::OkStatus();
}

absl::Status Confine(uint64_t memory_bytes) {
  OfferToTheOomKiller();
  EVENKEEL_RETURN_IF_ERROR(LimitResources(memory_bytes));
  EndWhereMemoryEnds();
  if (prctl(PR_SET_DUMPABLE, 0) != 0) return CanNot("PR_SET_DUMPABLE", errno);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return CanNot("PR_SET_NO_NEW_PRIVS", errno);
  return kConfinesFully ? Filter() : absl::OkStatus();
}

}  // namespace evenkeel::isolation
