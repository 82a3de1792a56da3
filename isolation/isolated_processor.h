// A processor whose media are decoded by confined processes. Everything else is the processor it wraps.
//
// Example:
//     // Before any thread:
//     EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<DecoderPool> decoders, StartDecoders(job, options));
//     processor = WithDecoders(std::move(processor), std::move(decoders), job);
//
// Nothing is copied where the bytes of an item and its fields lie in `memory()`, but for small fields and
// what a field has in pages that it shares with others; elsewhere both are. Errors are those of the
// processor; besides, Probe and Produce return Internal where the decoder process had to be replaced and
// Unavailable where there is none: the attempt failed.
//
// Thread safety: as of any processor.
#pragma once

#include <memory>

#include "core/job.h"
#include "isolation/decoder_budget.h"
#include "isolation/decoder_pool.h"
#include "isolation/shared_memory.h"

namespace evenkeel::isolation {

// Whether media of a kind are decoded by processes of their own.
bool IsIsolated(Isolation isolation, Medium medium);

class IsolatedProcessor final : public preprocess::Processor {
 public:
  IsolatedProcessor(std::unique_ptr<preprocess::Processor> processor, std::unique_ptr<DecoderPool> decoders,
                    Isolation isolation, const CpuBudget& budget = {});

  bool is_isolated(Medium medium) const override { return IsIsolated(isolation_, medium); }
  absl::StatusOr<preprocess::StoredBytes> AllocateStored(Medium medium, uint64_t num_bytes) const override;
  // For bytes of items (Use::kInput) and for parts (Use::kOutput), whose files no decoder gets.
  SharedMemory& memory() const { return decoders_->memory(); }
  DecoderPool& decoders() const { return *decoders_; }

  absl::StatusOr<MediaFacts> Probe(Medium medium, std::string_view suffix,
                                   std::span<const std::byte> bytes) const override;
  absl::Status Produce(const preprocess::ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;

  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    return processor_->Measure(facts);
  }
  absl::StatusOr<SequenceLengths> MeasureSequence(const Conversation& conversation,
                                                  std::span<const SampleItem> items,
                                                  std::span<const MediaFacts> facts) const override {
    return processor_->MeasureSequence(conversation, items, facts);
  }
  Digest digest() const override { return processor_->digest(); }
  const std::vector<preprocess::FieldSpec>& fields(Medium medium) const override {
    return processor_->fields(medium);
  }
  absl::Status FillInvalid(const preprocess::ItemRequest& request,
                           std::span<const std::span<std::byte>> field_bytes) const override {
    return processor_->FillInvalid(request, field_bytes);
  }
  MediaFacts DummyFacts(Phase phase) const override { return processor_->DummyFacts(phase); }
  absl::Status BuildSequence(const Conversation& conversation, std::span<const SampleItem> items,
                             std::span<const MediaFacts> facts, preprocess::Sequence& out) const override {
    return processor_->BuildSequence(conversation, items, facts, out);
  }
  int64_t pad_token() const override { return processor_->pad_token(); }
  bool has_grid_positions(Medium medium) const override { return processor_->has_grid_positions(medium); }

 private:
  struct Input;

  absl::StatusOr<Input> Share(std::span<const std::byte> bytes) const;

  const std::unique_ptr<preprocess::Processor> processor_;
  const std::unique_ptr<DecoderPool> decoders_;
  const Isolation isolation_;
  const CpuBudget budget_;
};

// `processor` with `decoders`, which are not null, for the media that the job isolates, by its limits.
std::unique_ptr<IsolatedProcessor> MakeIsolated(std::unique_ptr<preprocess::Processor> processor,
                                                std::unique_ptr<DecoderPool> decoders, const Job& job);

// The same in the place of a processor that is in use. Null where there are no decoders.
const IsolatedProcessor* Isolate(std::unique_ptr<preprocess::Processor>& processor,
                                 std::unique_ptr<DecoderPool> decoders, const Job& job);

// The same; `processor` as it is where there are no decoders.
std::unique_ptr<preprocess::Processor> WithDecoders(std::unique_ptr<preprocess::Processor> processor,
                                                    std::unique_ptr<DecoderPool> decoders, const Job& job);

// The decoders of a job; null where nothing is isolated or there are no media. To be called while the process
// has one thread. Errors of Processor::LoadMedia and DecoderPool::Start.
absl::StatusOr<std::unique_ptr<DecoderPool>> StartDecoders(const Job& job,
                                                           const DecoderPool::Options& options);

}  // namespace evenkeel::isolation
