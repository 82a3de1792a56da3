// What the index needs to know of a processor: facts from bytes, lengths from facts. `preprocess/` implements
// it, `dataset/` uses it, so that neither includes the other.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/conversation.h"
#include "core/digest.h"
#include "core/words.h"

namespace evenkeel {

struct SequenceLengths {
  uint32_t llm_length = 0;     // tokens, before alignment
  uint32_t loss_tokens = 0;    // after the shift
  uint32_t chosen_length = 0;  // SampleLengths::chosen_length
};

// Thread safety: all members are const and may be called from many threads.
class Measurer {
 public:
  virtual ~Measurer() = default;

  // Facts of one item from its header, or one pass over its packets. Nothing is decoded. `suffix` is the
  // member's lower-case suffix ("jpg", "seg.png": the last component declares the type, the magic must
  // agree). InvalidArgument: not what it declares, damaged, no length; ResourceExhausted: beyond a limit;
  // Unimplemented: a format or codec that the stream does not promise to decode bit-identically.
  virtual absl::StatusOr<MediaFacts> Probe(Medium medium, std::string_view suffix,
                                           std::span<const std::byte> bytes) const = 0;
  // InvalidArgument: an item that the processor refuses (an aspect ratio above 200, say).
  virtual absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const = 0;
  // How many phases encode items of the medium. Each has lengths of its own; Measure gives those of the first.
  virtual uint8_t num_towers(Medium) const { return 1; }
  // Whether a phase generates items of the medium: those in turns of the assistant are then its targets, which no phase encodes.
  virtual bool generates(Medium) const { return false; }
  // The same of the phase with that number among those that encode the medium; kTargetTower: of its generator.
  virtual absl::StatusOr<ItemLengths> MeasureIn(uint8_t tower, const MediaFacts& facts) const {
    if (tower != 0) return absl::InternalError("there is one phase for the medium, and another is asked for");
    return Measure(facts);
  }
  // Whether lengths of items of the medium depend on their bytes and not on their facts alone. MeasureStored
  // then gives them, and Measure those of the smallest item.
  virtual bool measures_stored(Medium) const { return false; }
  // Errors as Measure.
  virtual absl::StatusOr<ItemLengths> MeasureStored(const MediaFacts& facts, std::string_view /*suffix*/,
                                                    std::span<const std::byte> /*bytes*/) const {
    return Measure(facts);
  }
  // Lengths of the rendered, tokenised and expanded sequence. `items` are the sample's with placeholders, in order,
  // and `facts` what Probe found of its media (the text around a video may give its times): the audio of a video has none
  // of its own.
  // ResourceExhausted: longer than the limit.
  virtual absl::StatusOr<SequenceLengths> MeasureSequence(const Conversation& conversation,
                                                          std::span<const SampleItem> items,
                                                          std::span<const MediaFacts> facts) const = 0;
  // Names everything that the lengths and values depend on: the processor's files and the job's overrides.
  virtual Digest digest() const = 0;
};

}  // namespace evenkeel
