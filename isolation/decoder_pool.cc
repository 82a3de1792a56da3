#include "isolation/decoder_pool.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "isolation/decoder_sandbox.h"
#include "isolation/remote_work.h"

namespace evenkeel::isolation {
namespace {

// What --decoder-memory may be. With less no item would ever be made, and every one would cost its worker a
// process.
constexpr uint64_t kLeastMemoryBytes = 64 << 20;
constexpr uint64_t kMostMemoryBytes = 1ull << 50;

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

// Whether a process was stopped, or waits for a disk: it stands still, and not by what it does.
bool IsStopped(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() &&
         absl::string_view("TtD").find(text[name_end + 2]) != absl::string_view::npos;
}

std::string Describe(int status) {
  if (WIFSIGNALED(status)) {
    const char* name = strsignal(WTERMSIG(status));
    return absl::StrCat("signal ", WTERMSIG(status), ", ", name == nullptr ? "" : name);
  }
  return absl::StrCat("exit code ", WEXITSTATUS(status));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DecoderPool>> DecoderPool::Start(const preprocess::Processor& processor,
                                                                const Options& options) {
  if (options.memory_bytes < kLeastMemoryBytes || options.memory_bytes > kMostMemoryBytes) {
    return absl::InvalidArgumentError(absl::StrCat("--decoder-memory must be from 64 MiB to 1 PiB, is ",
                                                   options.memory_bytes,
                                                   " bytes; a decoder needs a picture or frame of the job's "
                                                   "limits, and some beside it (default: 2 GiB)"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(
      auto spawner, DecoderSpawner::Start(processor, options.memory_bytes, options.patience, options.events));
  std::unique_ptr<DecoderPool> pool(new DecoderPool(options, std::move(spawner)));
  EVENKEEL_ASSIGN_OR_RETURN(Decoder first, pool->Take());  // so that what forbids decoders shows now
  pool->GiveBack(std::move(first));
  return pool;
}

absl::StatusOr<DecoderPool::Decoder> DecoderPool::Spawn() {
  Decoder decoder;
  EVENKEEL_ASSIGN_OR_RETURN(decoder.child, spawner_->Spawn());
  MutexLock lock(mutex_);
  decoder.writer = ++last_writer_;
  return decoder;
}

absl::StatusOr<DecoderPool::Decoder> DecoderPool::Take() {
  std::vector<Decoder> ended;
  std::optional<Decoder> found;
  {
    MutexLock lock(mutex_);
    while (!idle_.empty() && !found.has_value()) {
      Decoder decoder = std::move(idle_.back());
      idle_.pop_back();
      if (decoder.child.spawner == spawner_->current()) {
        found = std::move(decoder);
      } else {
        ended.push_back(std::move(decoder));  // with its spawner
      }
    }
  }
  for (const Decoder& decoder : ended) memory_->Forget(decoder.writer);
  if (found.has_value()) return *std::move(found);
  return Spawn();
}

void DecoderPool::GiveBack(Decoder decoder) {
  MutexLock lock(mutex_);
  idle_.push_back(std::move(decoder));
}

std::string DecoderPool::WaitForReply(const Decoder& decoder, absl::Duration cpu_budget) const {
  clockid_t clock = CLOCK_MONOTONIC;
  if (clock_getcpuclockid(decoder.child.pid, &clock) != 0) return "crash";
  const absl::Duration begin = CpuTime(clock);
  absl::Duration seen = begin;
  absl::Duration own_seen = CpuTime(CLOCK_THREAD_CPUTIME_ID);
  absl::Time moved = SteadyNow();
  for (;;) {
    pollfd socket{decoder.child.socket.get(), POLLIN, 0};
    if (poll(&socket, 1, kLookMilliseconds) > 0) return "";
    const absl::Duration now = CpuTime(clock);
    // Looking takes this thread some CPU time, which must not pass for work on the item.
    const absl::Duration own = CpuTime(CLOCK_THREAD_CPUTIME_ID);
    RemoteWork() -= static_cast<uint64_t>(absl::ToInt64Nanoseconds(own - own_seen));
    own_seen = own;
    if (now > seen) {
      RemoteWork() += static_cast<uint64_t>(absl::ToInt64Nanoseconds(now - seen));
      seen = now;
      moved = SteadyNow();
    }
    if (seen - begin > cpu_budget) return "cpu";
    if (SteadyNow() - moved > options_.still) return "still";
  }
}

absl::Status DecoderPool::Replace(Decoder decoder, std::string reason) {
  memory_->Forget(decoder.writer);
  const bool stopped = reason == "still" && IsStopped(decoder.child.pid);
  const int ended = spawner_->End(decoder.child);
  const std::string how = Describe(ended);
  if (reason.empty()) reason = ReasonOf(ended);
  ++num_replaced_;
  for (DecoderEvents* events : {options_.events, counter_.load()}) {
    if (events != nullptr) events->OnDecoderReplaced(reason, how);
  }
  absl::StatusOr<Decoder> next = Spawn();  // ready for the next item
  if (next.ok()) GiveBack(*std::move(next));
  const std::string why = absl::StrCat("the decoder process was replaced: ", reason, " (", how, ")");
  // Who kills or stops a decoder is the machine, or its owner.
  if (reason == "killed" || stopped) return absl::UnavailableError(why);
  // No item makes its decoder stand still without using CPU time: it waits for memory that is paged out.
  const absl::Status replaced = absl::InternalError(why);
  return reason == "still" ? WithKind(replaced, FailureKind::kMachine) : replaced;
}

absl::StatusOr<DecoderPool::Decoder> DecoderPool::Begin(const DecoderCall& call, int input,
                                                        uint64_t output_bytes, SharedMemory::Block* output) {
  EVENKEEL_ASSIGN_OR_RETURN(Decoder decoder, Take());
  std::vector<int> files = {input};
  if (output_bytes > 0) {
    absl::StatusOr<SharedMemory::Block> block = memory_->AllocateFor(decoder.writer, output_bytes);
    if (!block.ok()) {
      GiveBack(std::move(decoder));
      return block.status();
    }
    *output = *std::move(block);
    files.push_back(memory_->Find(output->bytes())->fd);
  }
  if (SendMessage(decoder.child.socket.get(), call, files).ok()) return decoder;
  if (output != nullptr) *output = SharedMemory::Block();
  return Replace(std::move(decoder), "");
}

absl::Status DecoderPool::Run(const DecoderCall& call, int input, uint64_t output_bytes,
                              absl::Duration cpu_budget, DecoderReply* reply, SharedMemory::Block* output) {
  absl::StatusOr<Decoder> decoder = Begin(call, input, output_bytes, output);
  // It ended while it was idle: not by this item.
  if (absl::IsInternal(decoder.status()) || absl::IsUnavailable(decoder.status()))
    decoder = Begin(call, input, output_bytes, output);
  // No decoder has seen the item yet: there is no process or no memory for one.
  EVENKEEL_RETURN_IF_ERROR(WithKind(decoder.status(), FailureKind::kMachine));
  std::string reason = WaitForReply(*decoder, cpu_budget);
  if (!reason.empty() || !ReceiveMessage(decoder->child.socket.get(), reply).ok()) {
    return Replace(*std::move(decoder), std::move(reason));
  }
  GiveBack(*std::move(decoder));
  return reply->status();
}

}  // namespace evenkeel::isolation
