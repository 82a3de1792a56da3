// Hands calls to idle decoder processes, watches their CPU time, and replaces those that fail.
#include "isolation/decoder_pool.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/status.h"
#include "isolation/child_watch.h"

namespace evenkeel::isolation {
namespace {

// Limits of --decoder-memory. With less than the lower one no item could be decoded, and every item would
// cost a process.
constexpr uint64_t kMinMemoryBytes = 64 << 20;
constexpr uint64_t kMaxMemoryBytes = 1ull << 50;

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

absl::Status DecoderPool::Replace(Decoder decoder, std::string reason) {
  memory_->Forget(decoder.writer);
  const bool stopped = reason == "still" && IsStopped(decoder.child.pid);
  const int ended = spawner_->End(decoder.child);
  const std::string how = DescribeEnd(ended);
  if (reason.empty()) reason = ReasonOf(ended);
  ++num_replaced_;
  for (DecoderEvents* events : {options_.events, counter_.load()}) {
    if (events != nullptr) events->OnDecoderReplaced(reason, how);
  }
  absl::StatusOr<Decoder> next = Spawn();  // so that the next item need not wait for a process
  if (next.ok()) GiveBack(*std::move(next));
  return ReplacedError(absl::StrCat("decoder process was replaced: ", reason, " (", how, ")"), reason,
                       stopped);
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
  std::string reason =
      WaitForReply(decoder->child.pid, decoder->child.socket.get(), cpu_budget, options_.still);
  if (!reason.empty() || !ReceiveMessage(decoder->child.socket.get(), reply).ok()) {
    return Replace(*std::move(decoder), std::move(reason));
  }
  GiveBack(*std::move(decoder));
  return reply->status();
}

}  // namespace evenkeel::isolation
