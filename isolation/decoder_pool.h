// Confined processes that decode media, so that hostile media end a decoder and never the worker.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(auto pool, DecoderPool::Start(*processor, {}));  // before any thread
//     absl::Status made = pool->Run(call, input, num_bytes, budget, &reply, &output);  // from any thread
//
// As many decoders as threads call at a time; they are reused. One that crashes, uses more CPU time than its
// item's budget, runs out of memory, makes a forbidden system call or stands still is ended and replaced at
// once, and its item's *attempt* fails (Internal; Unavailable where it was killed or stood still, which is
// the machine's doing): none of that is a verdict on the item. Verdicts are what the processor returned.
//
// Thread safety: all members but Start may be called from many threads.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"
#include "isolation/decoder_events.h"
#include "isolation/decoder_message.h"
#include "isolation/decoder_spawner.h"
#include "isolation/shared_memory.h"

namespace evenkeel::isolation {

class DecoderPool {
 public:
  struct Options {
    uint64_t memory_bytes = 2ull << 30;           // that one decoder may allocate
    absl::Duration still = absl::Seconds(60);     // without any CPU time, until it is taken for hung
    absl::Duration patience = absl::Seconds(10);  // with a process that makes decoders and does not answer
    DecoderEvents* events = nullptr;              // told of replacements; must outlive the pool
  };

  // To be called while the process has one thread. InvalidArgument: `options`; FailedPrecondition: there are
  // threads, or decoders cannot be confined here.
  static absl::StatusOr<std::unique_ptr<DecoderPool>> Start(const preprocess::Processor& processor,
                                                            const Options& options);

  // One call on an idle decoder, with the file `input` and an output of `output_bytes` (none where 0). The
  // status is the processor's; Internal where the decoder had to be replaced for what it did; Unavailable
  // where that was not its doing (it was killed or stopped), or where no decoder can be made. The latter, and
  // a decoder that stood still, are failures of the machine (core/failure.h). Where the processor replied,
  // `reply` is filled, and `output`, a block of memory(), has what it wrote.
  absl::Status Run(const DecoderCall& call, int input, uint64_t output_bytes, absl::Duration cpu_budget,
                   DecoderReply* reply, SharedMemory::Block* output);

  // For bytes of items (Use::kInput) and for parts (Use::kOutput), whose files no decoder gets.
  SharedMemory& memory() const { return *memory_; }

  // Tells `events` of replaced decoders, too, from now on; null: no longer. It must live until then.
  void CountInto(DecoderEvents* events) { counter_ = events; }
  // Not OK: no decoder can be made any more, and only a new process helps.
  absl::Status health() const { return spawner_->health(); }
  // Decoders replaced since the start.
  uint64_t num_replaced() const { return num_replaced_; }

 private:
  struct Decoder {
    DecoderSpawner::Child child;
    SharedMemory::Writer writer = 0;
  };

  DecoderPool(const Options& options, std::unique_ptr<DecoderSpawner> spawner)
      : options_(options), spawner_(std::move(spawner)) {}

  absl::StatusOr<Decoder> Spawn();
  absl::StatusOr<Decoder> Take();
  void GiveBack(Decoder decoder);
  // An idle decoder that has got the call. Internal or Unavailable: it ended instead, and was replaced.
  absl::StatusOr<Decoder> Begin(const DecoderCall& call, int input, uint64_t output_bytes,
                                SharedMemory::Block* output);
  // Empty where a reply is there to be read; else why the decoder was given up.
  std::string WaitForReply(const Decoder& decoder, absl::Duration cpu_budget) const;
  absl::Status Replace(Decoder decoder, std::string reason);

  const Options options_;
  const std::unique_ptr<DecoderSpawner> spawner_;
  const std::shared_ptr<SharedMemory> memory_ = SharedMemory::Make();
  std::atomic<DecoderEvents*> counter_{nullptr};
  std::atomic<uint64_t> num_replaced_{0};
  Mutex mutex_;
  SharedMemory::Writer last_writer_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Decoder> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel::isolation
