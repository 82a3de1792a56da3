// Confined processes that decode media, so that hostile media end a decoder and never the worker.
//
//   EVENKEEL_ASSIGN_OR_RETURN(auto pool, DecoderPool::Start(*processor, {}));   // before any thread
//   absl::Status made = pool->Run(call, files, budget, &reply);                 // from any thread
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
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"
#include "server/decoder_message.h"
#include "server/decoder_spawner.h"
#include "server/metrics.h"

namespace evenkeel {

class DecoderPool {
 public:
  struct Options {
    uint64_t memory_bytes = 2ull << 30;        // that one decoder may allocate
    absl::Duration still = absl::Seconds(60);  // without any CPU time, until it is taken for hung
  };

  // To be called while the process has one thread. FailedPrecondition: there are threads, or decoders cannot
  // be confined here.
  static absl::StatusOr<std::unique_ptr<DecoderPool>> Start(const Processor& processor,
                                                            const Options& options);

  // One call on an idle decoder. The status is the processor's, or Internal where the decoder had to be
  // replaced, or Unavailable where there is none. `reply` is filled where the processor replied.
  absl::Status Run(const DecoderCall& call, std::span<const int> files, absl::Duration cpu_budget,
                   DecoderReply* reply);

  // Counts replacements from now on; null: no longer. `metrics` must live until then.
  void CountInto(Metrics* metrics) { metrics_ = metrics; }
  // Decoders replaced since the start.
  uint64_t num_replaced() const { return num_replaced_; }

 private:
  using Child = DecoderSpawner::Child;

  DecoderPool(const Options& options, std::unique_ptr<DecoderSpawner> spawner)
      : options_(options), spawner_(std::move(spawner)) {}

  absl::StatusOr<Child> Take();
  void GiveBack(Child child);
  // Empty where a reply is there to be read; else why the decoder was given up.
  std::string WaitForReply(const Child& child, absl::Duration cpu_budget) const;
  absl::Status Replace(Child child, std::string reason);

  const Options options_;
  const std::unique_ptr<DecoderSpawner> spawner_;
  std::atomic<Metrics*> metrics_{nullptr};
  std::atomic<uint64_t> num_replaced_{0};
  Mutex mutex_;
  std::vector<Child> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel
