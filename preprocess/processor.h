// A model's processor: bytes -> tensors for one item, header -> length, conversation -> sequence.
//
// It is exactly the Hugging Face processor that the checkpoint's folder describes, or an error at load time.
// It is not: threads, batching, reading of shards.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(auto processor, Processor::Load(job.processor, job.limits));
//     EVENKEEL_ASSIGN_OR_RETURN(MediaFacts facts, processor->Probe(Medium::kImage, "jpg", bytes));
//     EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, processor->Measure(facts));
//     // fields(kImage): pixel_values [input_rows, 1176], image_grid_thw [1, 3]; the caller allocates them
//     ItemRequest request{Medium::kImage, "jpg", bytes, facts, lengths};
//     EVENKEEL_RETURN_IF_ERROR(processor->Produce(request, field_bytes));
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/measure.h"
#include "core/part.h"
#include "preprocess/video/frame_loader.h"

namespace evenkeel::preprocess {

// A tensor that items of a medium contribute to. Items are concatenated along axis 0, to which an item adds
// input_rows (per_row) or 1. The remaining axes are `trailing`.
struct FieldSpec {
  std::string name;  // Hugging Face field name
  DType dtype = DType::kF32;
  bool per_row = false;
  std::vector<uint64_t> trailing;
  std::shared_ptr<const PixelExpansion> expansion;  // not null where the wire form is u8 patches

  uint64_t extent(const ItemLengths& lengths) const { return per_row ? lengths.input_rows : 1; }
  uint64_t num_bytes(const ItemLengths& lengths) const;  // of one item
};

// What Produce adjusted so that the planned size is delivered; for metrics and messages, never part of a
// batch.
struct ItemNotes {
  uint64_t samples_filled = 0;   // audio: the decode was shorter than the index said; zeroes were appended
  uint64_t samples_trimmed = 0;  // audio: it was longer
  // Video: frames that the decode did not deliver; the last one is repeated for them.
  uint64_t frames_repeated = 0;
};

// One item to produce. Views; the caller owns the bytes.
struct ItemRequest {
  Medium medium = Medium::kImage;
  std::string_view suffix;
  std::span<const std::byte> bytes;
  MediaFacts facts;            // what the index found
  ItemLengths planned;         // what the plan promised
  ItemNotes* notes = nullptr;  // optional
  uint8_t tower = 0;           // which of the phases that take the medium asks for it: SampleItem::tower
  // Whose frames a video has; Processor::Produce sets that of its spec.
  FrameLoader frames = FrameLoader::kTorchcodec;
};

// A rendered, tokenized and expanded sample. All vectors have the same length, positions three times that,
// loss_weights none without processor.loss_weights.
struct Sequence {
  std::vector<int64_t> input_ids;
  std::vector<int64_t> labels;      // -100: no loss. Aligned with input_ids; labels[0] is -100
  std::vector<float> loss_weights;  // of the labels; 0 where there is none
  // Medium of each token; placeholders only, marks are text. kTargetType more for those of targets.
  std::vector<uint8_t> token_types;
  std::vector<int64_t> positions;  // [3, length]: t, h, w (M-RoPE); equal rows where the model has none
  // Of a preference pair: the tokens of the chosen sequence, before those of the rejected one. Each has labels and
  // positions of its own. 0: one sequence.
  uint32_t chosen_length = 0;
};

// Memory for an item as stored. Freed with its owner.
struct StoredBytes {
  std::shared_ptr<void> owner;
  std::span<std::byte> bytes;
};

class PythonProcesses;  // preprocess/python_processes.h

class Processor : public Measurer {
 public:
  // Reads the folders of `spec`. `python` is required if the spec has processor.python, and only then used.
  // InvalidArgument: a key that is unknown or has a value that is not implemented, with file and key;
  // NotFound: a file is missing; FailedPrecondition: no `python`.
  static absl::StatusOr<std::unique_ptr<Processor>> Load(const ProcessorSpec& spec, const Limits& limits,
                                                         std::shared_ptr<PythonProcesses> python = nullptr);
  // Without a tokenizer: everything except sequences, whose members return FailedPrecondition. For comparison
  // and debugging of media alone, and for decoder processes, which need no `python`: they probe only.
  static absl::StatusOr<std::unique_ptr<Processor>> LoadMedia(
      const ProcessorSpec& spec, const Limits& limits, std::shared_ptr<PythonProcesses> python = nullptr);

  // Fields that items of `medium` fill, in order. Empty where the processor has no such medium.
  virtual const std::vector<FieldSpec>& fields(Medium medium) const = 0;
  // The same where another than the first of the medium's phases encodes it: SampleItem::tower.
  virtual const std::vector<FieldSpec>& FieldsIn(uint8_t tower, Medium medium) const;

  // Writes the item into `field_bytes` (one span per field of its medium, each of num_bytes(planned)).
  // Errors of the item, found by counted work only (then the caller calls FillInvalid): InvalidArgument,
  // DataLoss, ResourceExhausted, Unimplemented. Errors of the attempt: Internal, Unavailable.
  virtual absl::Status Produce(const ItemRequest& request,
                               std::span<const std::span<std::byte>> field_bytes) const = 0;
  // Memory for the bytes of an item, which Produce reads from there without copying them. Unavailable: there
  // is none.
  virtual absl::StatusOr<StoredBytes> AllocateStored(Medium medium, uint64_t num_bytes) const;
  // Whether other processes write the fields of items of `medium`, which then lie in memory that they share.
  virtual bool is_isolated(Medium) const { return false; }
  // Whether Python processes produce items of `medium`; decoder processes then only probe them.
  virtual bool is_made_by_python(Medium) const { return false; }
  // Zero rows of the planned size; grids and other metadata from the facts, as for a good item.
  virtual absl::Status FillInvalid(const ItemRequest& request,
                                   std::span<const std::span<std::byte>> field_bytes) const = 0;
  // The smallest item of a phase, for ranks that need one where there is nothing: its facts and lengths.
  virtual MediaFacts DummyFacts(const Phase& phase) const = 0;

  // `items`: those with placeholders. Makes `out` the sample's sequence; its memory is kept. Checks placeholders ==
  // output_rows for every item (Internal where they differ). After an error `out` holds nothing of use.
  virtual absl::Status BuildSequence(const Conversation& conversation, std::span<const SampleItem> items,
                                     std::span<const MediaFacts> facts, Sequence& out) const = 0;
  // The token that pads sequences.
  virtual int64_t pad_token() const = 0;
  // Whether a sequence with an item of `medium` may have positions other than the numbers of its tokens.
  virtual bool has_grid_positions(Medium) const { return true; }
};

}  // namespace evenkeel::preprocess
