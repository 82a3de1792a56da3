// Confined Python processes that measure and produce items, so that nothing in Python can harm the worker.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(auto pool, PythonPool::Start(job.processor, {}));
//     auto processor = preprocess::Processor::Load(job.processor, job.limits, std::move(pool));
//
// There are as many processes as threads call at the same time; they are reused. A process that crashes, is
// killed, exceeds the CPU time of an item, runs out of memory or stands still is ended and replaced at once,
// and the *attempt* at its item fails: Internal, or Unavailable if the machine killed or stopped it. Verdicts on
// an item are the Python code's exceptions, and arrays of the wrong shape or type or with values that are not
// finite. What it prints reaches nobody.
//
// Thread safety: all members but Start may be called from many threads.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "isolation/child_pool.h"
#include "isolation/decoder_events.h"
#include "isolation/python_message.h"
#include "isolation/python_spawner.h"
#include "isolation/shared_memory.h"

namespace evenkeel::isolation {

class PythonPool final : public preprocess::PythonProcesses {
 public:
  struct Options {
    PythonSpawner::Options spawner;
    absl::Duration cpu = absl::Seconds(60);    // that one call may use
    absl::Duration still = absl::Seconds(60);  // without CPU time before a process counts as hung
    // Of items and fields. With the memory of the decoder pool, in which parts are, items are not copied and fields
    // are moved; null: the pool's own, from which fields are copied.
    std::shared_ptr<SharedMemory> memory = nullptr;
  };

  // InvalidArgument: wrong options. Otherwise as PythonSpawner::Start.
  static absl::StatusOr<std::shared_ptr<PythonPool>> Start(const ProcessorSpec& spec, const Options& options);

  const preprocess::PythonDescription& description() const override {
    return children_.spawner().description();
  }
  absl::StatusOr<preprocess::PythonLengths> Measure(const MediaFacts& facts, std::string_view suffix,
                                                    std::span<const std::byte> bytes) override;
  absl::StatusOr<preprocess::PythonText> Render(std::string_view sample) override;
  absl::Status Produce(const preprocess::ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) override;
  absl::Status ProduceBlank(const preprocess::ItemRequest& request,
                            std::span<const std::span<std::byte>> field_bytes) override;

  const std::string& interpreter() const { return children_.spawner().interpreter(); }
  // Notifies `events`, too, of replaced processes from now on; null: no longer. It must live until then.
  void CountInto(DecoderEvents* events) { children_.CountInto(events); }
  // Ends all calls, now and from now on, with Cancelled, so that a worker can end while a process stands still.
  void Abandon() { children_.Abandon(); }
  // Processes replaced since the start.
  uint64_t num_replaced() const { return children_.num_replaced(); }

 private:
  PythonPool(const Options& options, std::unique_ptr<PythonSpawner> spawner)
      : cpu_(options.cpu),
        children_(std::move(spawner), "Python process", options.still, options.spawner.events,
                  options.memory) {}

  // The item's bytes in shared memory, named in the call: where they are, or a copy, which must live as long as the
  // call.
  absl::StatusOr<SharedMemory::Block> ShareInput(std::span<const std::byte> bytes, PythonCall& call,
                                                 int* file);
  // `input`: the file of the item's bytes; -1: none.
  absl::StatusOr<PythonReply> Run(PythonCall call, int input, uint64_t output_bytes,
                                  SharedMemory::Block* output);
  absl::Status Fill(PythonWork work, const preprocess::ItemRequest& request,
                    std::span<const std::span<std::byte>> field_bytes);

  const absl::Duration cpu_;  // that one call may use
  ChildPool<PythonSpawner> children_;
  std::atomic<uint64_t> last_call_{0};
};

}  // namespace evenkeel::isolation
