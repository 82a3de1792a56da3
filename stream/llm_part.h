// Parts of the llm: the sequences of one microbatch of one rank.
//
// packed (n samples, T tokens):
//   input_ids, labels, mm_token_type_ids i64 [1, T]; position_ids i64 [3, 1, T]
//   cu_seqlens i32 [segments + 1]   one segment per sample, and one more for padding at the end, if any
// padded (B = max(n, 1) rows of L tokens):
//   input_ids, labels, attention_mask, mm_token_type_ids i64 [B, L]; position_ids i64 [3, B, L]
// both, as delivered; on the wire the fields above that have a value for every token are words of 32 bits and
// explicit positions of the samples that have media on a grid (core/token_fields.h):
//   loss_tokens i64 [1]             as planned for this part, after the shift
//   sample_ids i64 [n, 3]           dataset, epoch, index
//   sample_valid u8 [n]             0: the text is not what the index saw; all its labels are -100
//
// A sample takes its planned, aligned length; what it does not fill is padding at its end. T is the sum of
// the lengths, or pad_to; L the greatest length, or pad_to / B. A microbatch without samples is a masked
// dummy. Padding: the pad token, label -100, type 0. Its positions: packed, they go on counting (a segment of
// padding counts from 0); padded, 1 with attention_mask 0, as the models themselves do.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "stream/part_events.h"
#include "stream/part_task.h"
#include "stream/stream.h"

namespace evenkeel::stream {

// `samples`: of the microbatch (indices into plan.samples), by position. Arguments other than `plan` must
// outlive the task; `events` may be null.
absl::StatusOr<std::unique_ptr<PartTask>> MakeLlmTask(const Stream& stream,
                                                      std::shared_ptr<const StepPlan> plan,
                                                      const PartName& name, std::span<const uint32_t> samples,
                                                      PartEvents* events);

}  // namespace evenkeel::stream
