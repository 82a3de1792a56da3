// A processor whose media are decoded by confined processes. The rest is left to the processor it wraps.
//
// Example:
//     // Before any thread:
//     EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<DecoderPool> decoders, StartDecoders(job, options));
//     processor = WithDecoders(std::move(processor), std::move(decoders), job);
//
// If the bytes of an item and its fields are in `memory()`, only small fields and pages that a field shares
// with its neighbours are copied; otherwise bytes and fields are copied. Errors are those of the processor.
// In addition Probe and Produce return Internal if the decoder process had to be replaced, and Unavailable if
// there is none: the attempt failed.
//
// Thread safety: that of the wrapped processor.
#pragma once

#include <memory>

#include "core/job.h"
#include "isolation/decoder_budget.h"
#include "isolation/decoder_pool.h"
#include "isolation/shared_memory.h"

namespace evenkeel::isolation {

// Whether a kind of media is decoded by separate processes.
bool IsIsolated(Isolation isolation, Medium medium);
// The same for one item: pictures that FFmpeg decodes are, where only its media are. They are copied to a decoder and
// back, since memory is chosen by the kind of media.
bool IsIsolated(Isolation isolation, Medium medium, std::string_view suffix);

class IsolatedProcessor final : public preprocess::Processor {
 public:
  IsolatedProcessor(std::unique_ptr<preprocess::Processor> processor, std::unique_ptr<DecoderPool> decoders,
                    Isolation isolation, const CpuBudget& budget = {});

  bool is_isolated(Medium medium) const override { return IsIsolated(isolation_, medium); }
  absl::StatusOr<preprocess::StoredBytes> AllocateStored(Medium medium, uint64_t num_bytes) const override;
  // For the bytes of items (Use::kInput) and for parts (Use::kOutput), whose files no decoder gets.
  SharedMemory& memory() const { return *decoders_->memory(); }
  DecoderPool& decoders() const { return *decoders_; }

  absl::StatusOr<MediaFacts> Probe(Medium medium, std::string_view suffix,
                                   std::span<const std::byte> bytes) const override;
  absl::Status Produce(const preprocess::ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;

  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    return processor_->Measure(facts);
  }
  uint8_t num_towers(Medium medium) const override { return processor_->num_towers(medium); }
  bool generates(Medium medium) const override { return processor_->generates(medium); }
  absl::StatusOr<ItemLengths> MeasureIn(uint8_t tower, const MediaFacts& facts) const override {
    return processor_->MeasureIn(tower, facts);
  }
  bool measures_stored(Medium medium) const override { return processor_->measures_stored(medium); }
  absl::StatusOr<ItemLengths> MeasureStored(const MediaFacts& facts, std::string_view suffix,
                                            std::span<const std::byte> bytes) const override {
    return processor_->MeasureStored(facts, suffix, bytes);
  }
  bool is_made_by_python(Medium medium) const override { return processor_->is_made_by_python(medium); }
  absl::StatusOr<SequenceLengths> MeasureSequence(const Conversation& conversation,
                                                  std::span<const SampleItem> items,
                                                  std::span<const MediaFacts> facts) const override {
    return processor_->MeasureSequence(conversation, items, facts);
  }
  Digest digest() const override { return processor_->digest(); }
  const std::vector<preprocess::FieldSpec>& fields(Medium medium) const override {
    return processor_->fields(medium);
  }
  const std::vector<preprocess::FieldSpec>& FieldsIn(uint8_t tower, Medium medium) const override {
    return processor_->FieldsIn(tower, medium);
  }
  absl::Status FillInvalid(const preprocess::ItemRequest& request,
                           std::span<const std::span<std::byte>> field_bytes) const override {
    return processor_->FillInvalid(request, field_bytes);
  }
  MediaFacts DummyFacts(const Phase& phase) const override { return processor_->DummyFacts(phase); }
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

// Wraps `processor`, with `decoders` (not null) for the media that the job isolates, within the job's limits.
std::unique_ptr<IsolatedProcessor> MakeIsolated(std::unique_ptr<preprocess::Processor> processor,
                                                std::unique_ptr<DecoderPool> decoders, const Job& job);

// Wraps a processor that is in use, in its place. Null if there are no decoders.
const IsolatedProcessor* Isolate(std::unique_ptr<preprocess::Processor>& processor,
                                 std::unique_ptr<DecoderPool> decoders, const Job& job);

// Wraps `processor`; returns it unchanged if there are no decoders.
std::unique_ptr<preprocess::Processor> WithDecoders(std::unique_ptr<preprocess::Processor> processor,
                                                    std::unique_ptr<DecoderPool> decoders, const Job& job);

// The decoders of a job; null if nothing is isolated or the job has no media. Call it while the process has
// one thread. Errors of Processor::LoadMedia and DecoderPool::Start.
absl::StatusOr<std::unique_ptr<DecoderPool>> StartDecoders(const Job& job,
                                                           const DecoderPool::Options& options);

}  // namespace evenkeel::isolation
