// Confined processes that decode media, so that a hostile medium can end a decoder but never the worker.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(auto pool, DecoderPool::Start(*processor, {}));  // before any thread
//     absl::Status made = pool->Run(call, input, num_bytes, budget, &reply, &output);  // from any thread
//
// There are as many decoders as threads call at the same time; they are reused. A decoder that crashes,
// exceeds the CPU budget of its item, runs out of memory, makes a forbidden system call or stands still is
// ended and replaced at once, and the *attempt* at its item fails: Internal, or Unavailable if the machine
// killed or stopped it. None of this is a verdict on the item. Verdicts are the processor's own results.
//
// Thread safety: all members but Start may be called from many threads.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "isolation/child_pool.h"
#include "isolation/decoder_events.h"
#include "isolation/decoder_message.h"
#include "isolation/decoder_spawner.h"
#include "isolation/shared_memory.h"

namespace evenkeel::isolation {

class DecoderPool {
 public:
  struct Options {
    uint64_t memory_bytes = 2ull << 30;           // that one decoder may allocate
    absl::Duration still = absl::Seconds(60);     // without CPU time before a decoder counts as hung
    absl::Duration patience = absl::Seconds(10);  // for an answer of the process that forks decoders
    DecoderEvents* events = nullptr;              // notified of replacements; must outlive the pool
  };

  // Call it while the process has one thread. InvalidArgument: wrong `options`; FailedPrecondition: there are
  // threads, or decoders cannot be confined on this machine.
  static absl::StatusOr<std::unique_ptr<DecoderPool>> Start(const preprocess::Processor& processor,
                                                            const Options& options);

  // Runs one call on an idle decoder, with the file `input` and an output of `output_bytes` (0: no output).
  // The status is the processor's. Internal: the decoder was replaced because of what it did. Unavailable: it
  // was killed or stopped by others, or no decoder can be made. The latter, and a decoder that stood still,
  // are failures of the machine (core/failure.h). If the processor replied, `reply` is filled, and `output`,
  // a block of memory(), has what it wrote.
  absl::Status Run(const DecoderCall& call, int input, uint64_t output_bytes, absl::Duration cpu_budget,
                   DecoderReply* reply, SharedMemory::Block* output);

  // For the bytes of items (Use::kInput) and for parts (Use::kOutput), whose files no decoder gets.
  const std::shared_ptr<SharedMemory>& memory() const { return children_.memory(); }

  // Notifies `events`, too, of replaced decoders from now on; null: no longer. It must live until then.
  void CountInto(DecoderEvents* events) { children_.CountInto(events); }
  // Ends all calls, now and from now on, with Cancelled, so that a worker can end while a decoder stands still.
  void Abandon() { children_.Abandon(); }
  // Not OK: no decoder can be made any more; only a restart of the process helps.
  absl::Status health() const { return children_.spawner().health(); }
  // Decoders replaced since the start.
  uint64_t num_replaced() const { return children_.num_replaced(); }

 private:
  DecoderPool(const Options& options, std::unique_ptr<DecoderSpawner> spawner)
      : children_(std::move(spawner), "decoder process", options.still, options.events) {}

  ChildPool<DecoderSpawner> children_;
};

}  // namespace evenkeel::isolation
