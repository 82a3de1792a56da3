// Hands calls to idle decoder processes, watches their CPU time, and replaces those that fail.
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

// Limits of --decoder-memory. With less than the lower one no item could be decoded, and every item would
// cost a process.
constexpr uint64_t kMinMemoryBytes = 64 << 20;
constexpr uint64_t kMaxMemoryBytes = 1ull << 50;

// Interval between two checks of a running decoder's CPU time.
constexpr int kLookMilliseconds = 10;

absl::Duration CpuTime(clockid_t clock) {
  timespec time{};
  return clock_gettime(clock, &time) == 0 ? absl::DurationFromTimespec(time) : absl::ZeroDuration();
}

// The reason of a process that ended by itself, from its wait status.
std::string ReasonOf(int status) {
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) return "forbidden_call";
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return "killed";
  if (WIFEXITED(status) && WEXITSTATUS(status) == kExitNoMemory) return "memory";
  return "crash";
}

// Whether a process was stopped or waits for a disk: then the item did not make it stand still.
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
  if (options.memory_bytes < kMinMemoryBytes || options.memory_bytes > kMaxMemoryBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--decoder-memory must be from 64 MiB to 1 PiB, got ", options.memory_bytes,
                     " bytes; a decoder needs memory for one image or frame of the job's "
                     "limits and for its codec (default: 2 GiB)"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(
      auto spawner, DecoderSpawner::Start(processor, options.memory_bytes, options.patience, options.events));
  std::unique_ptr<DecoderPool> pool(new DecoderPool(options, std::move(spawner)));
  // so that a machine that forbids decoders fails at the start
  EVENKEEL_ASSIGN_OR_RETURN(Decoder first, pool->Take());
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
        ended.push_back(std::move(decoder));  // it ended with its spawner
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

// Waits until the reply can be read, the CPU budget is used up, or the decoder has used no CPU time for a
// while. Its CPU time is added to RemoteWork(), which the part pool reads as progress of this thread.
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
  absl::StatusOr<Decoder> next = Spawn();  // so that the next item need not wait for a process
  if (next.ok()) GiveBack(*std::move(next));
  const std::string why = absl::StrCat("decoder process was replaced: ", reason, " (", how, ")");
  // A decoder is killed or stopped by the machine or its owner, never by the item.
  if (reason == "killed" || stopped) return absl::UnavailableError(why);
  // No item makes its decoder stand still without using CPU time: the decoder waits for memory that is
  // swapped out.
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
  // An error here means that the decoder ended while it was idle, so the item gets a second one.
  if (absl::IsInternal(decoder.status()) || absl::IsUnavailable(decoder.status()))
    decoder = Begin(call, input, output_bytes, output);
  // No decoder has received the item: the machine has no process or no memory for one.
  EVENKEEL_RETURN_IF_ERROR(WithKind(decoder.status(), FailureKind::kMachine));
  std::string reason = WaitForReply(*decoder, cpu_budget);
  if (!reason.empty() || !ReceiveMessage(decoder->child.socket.get(), reply).ok()) {
    return Replace(*std::move(decoder), std::move(reason));
  }
  GiveBack(*std::move(decoder));
  return reply->status();
}

}  // namespace evenkeel::isolation
