// Confined processes that decode media, so that hostile media end a decoder and never the worker.
//
//   EVENKEEL_ASSIGN_OR_RETURN(auto pool, DecoderPool::Start(*processor, {}));   // before any thread
//   absl::Status made = pool->Run(call, input, num_bytes, budget, &reply, &output);   // from any thread
//
// As many decoders as threads call at a time; they are reused. One that crashes, uses more CPU time than its
// item's budget, runs out of memory, makes a forbidden system call or stands still is ended and replaced at
// once, and its item's *attempt* fails (Internal): none of that is a verdict on the item. Verdicts are what
// the processor returned.
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
#include "server/decoder_message.h"
#include "server/decoder_spawner.h"
#include "server/metrics.h"
#include "server/shared_memory.h"

namespace evenkeel {

class DecoderPool {
 public:
  struct Options {
    uint64_t memory_bytes = 2ull << 30;        // that one decoder may allocate
    absl::Duration still = absl::Seconds(60);  // without any CPU time, until it is taken for hung
  };

  // To be called while the process has one thread. InvalidArgument: `options`; FailedPrecondition: there are
  // threads, or decoders cannot be confined here.
  static absl::StatusOr<std::unique_ptr<DecoderPool>> Start(const Processor& processor,
                                                            const Options& options);

  // One call on an idle decoder, with the file `input` and an output of `output_bytes` (none where 0). The
  // status is the processor's, or Internal where the decoder had to be replaced, or Unavailable where there
  // is none. Where the processor replied, `reply` is filled, and `output`, a block of memory(), has what it
  // wrote.
  absl::Status Run(const DecoderCall& call, int input, uint64_t output_bytes, absl::Duration cpu_budget,
                   DecoderReply* reply, SharedMemory::Block* output);

  // For bytes of items (Use::kInput) and for parts (Use::kOutput), whose files no decoder gets.
  SharedMemory& memory() const { return *memory_; }

  // Counts replacements from now on; null: no longer. `metrics` must live until then.
  void CountInto(Metrics* metrics) { metrics_ = metrics; }
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
  // An idle decoder that has got the call. Internal: it ended instead, and was replaced.
  absl::StatusOr<Decoder> Begin(const DecoderCall& call, int input, uint64_t output_bytes,
                                SharedMemory::Block* output);
  // Empty where a reply is there to be read; else why the decoder was given up.
  std::string WaitForReply(const Decoder& decoder, absl::Duration cpu_budget) const;
  absl::Status Replace(Decoder decoder, std::string reason);

  const Options options_;
  const std::unique_ptr<DecoderSpawner> spawner_;
  const std::shared_ptr<SharedMemory> memory_ = SharedMemory::Make();
  std::atomic<Metrics*> metrics_{nullptr};
  std::atomic<uint64_t> num_replaced_{0};
  Mutex mutex_;
  SharedMemory::Writer last_writer_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Decoder> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel
