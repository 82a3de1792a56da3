// A stream whose every byte is decided by the test: index and shards in memory, a processor of a few lines.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "stream/stream.h"

namespace evenkeel::stream {

// Items are `size` bytes in a shard of their own. The first byte says what the processor makes of it:
//   'X' DataLoss, 'R' ResourceExhausted, 'U' Unavailable, 'T' an exception; everything else is good.
struct FakeItem {
  Medium medium = Medium::kImage;
  uint32_t rows = 4;  // input rows; output rows are a quarter of it (at least 1)
  std::string bytes = "good";
};

// A plain sample: its items, then one token for each byte of the text.
struct FakeSample {
  std::string text;
  std::vector<FakeItem> items;
  std::string text_now = "";  // what the shard has today; empty: `text`
  uint32_t chosen = 0;  // the index has it as a pair, of which this is the length of the chosen sequence
};

inline constexpr int64_t kFakePad = 999;
inline constexpr int64_t kFakePlaceholder = 500;  // plus the medium
inline constexpr uint32_t kRefusedRows = 4000;    // of pictures that no budget holds

class FakeProcessor : public preprocess::Processor {
 public:
  FakeProcessor();
  absl::StatusOr<MediaFacts> Probe(Medium, std::string_view, std::span<const std::byte>) const override;
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override;
  absl::StatusOr<SequenceLengths> MeasureSequence(const Conversation& conversation,
                                                  std::span<const SampleItem> items,
                                                  std::span<const MediaFacts> facts) const override;
  Digest digest() const override { return DigestOf("fake processor"); }
  const std::vector<preprocess::FieldSpec>& fields(Medium medium) const override;
  absl::Status Produce(const preprocess::ItemRequest& request,
                       std::span<const std::span<std::byte>> fields) const override;
  absl::Status FillInvalid(const preprocess::ItemRequest& request,
                           std::span<const std::span<std::byte>> fields) const override;
  MediaFacts DummyFacts(const Phase& phase) const override;
  absl::Status BuildSequence(const Conversation& conversation, std::span<const SampleItem> items,
                             std::span<const MediaFacts> facts, preprocess::Sequence& out) const override;
  int64_t pad_token() const override { return kFakePad; }

  mutable std::atomic<uint64_t> produced{0};

 private:
  std::map<Medium, std::vector<preprocess::FieldSpec>> fields_;
};

// A job with these phases on ranks 0..ranks-1, on one node, `samples` a step.
Job FakeJob(uint32_t ranks, uint64_t samples);

// `job` over `samples`, which are drawn in order, again and again.
std::unique_ptr<Stream> MakeFakeStream(Job job, std::vector<FakeSample> samples);

// Samples of many shapes.
std::vector<FakeSample> MixedSamples(size_t count);

}  // namespace evenkeel::stream
