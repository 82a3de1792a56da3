// Builds parts of the llm: the sequences of one microbatch of one rank.
//
// packed (n samples, T tokens):
//   input_ids, labels, mm_token_type_ids i64 [1, T]; position_ids i64 [3, 1, T]
//   cu_seqlens i32 [segments + 1]   one segment per sequence, and one more for padding at the end, if any
// padded (B = max(n, 1) rows of L tokens):
//   input_ids, labels, attention_mask, mm_token_type_ids i64 [B, L]; position_ids i64 [3, B, L]
// both:
//   loss_tokens i64 [1]             as planned for this part, after the shift
//   sample_ids i64 [n, 3]           dataset, epoch, index
//   loss_weights f32 [1, T], [B, L] only with processor.loss_weights: of each label, 0 where there is none
//   columns u8 [n, max_column_bytes] only with columns in the job: JSON objects of the named members, spaces
//                                   after them; null members where sample_valid is 0
//   sample_valid u8 [n]             0: the text differs from what the index saw; all its labels are -100
//
// These are the delivered fields. On the wire, fields with a value per token are packed into words of 32
// bits, and positions are explicit only for samples with media on a grid (core/token_fields.h).
//
// A preference pair has two sequences, chosen and then rejected: each is a segment with positions from 0 and has a row of
// sample_ids, columns and sample_valid. So neighbouring rows of sample_ids are equal in a pair, and otherwise only in a job
// that cuts chunks, which has no pairs. In padded microbatches the rejected sequences are the last rows, in the order of
// their pairs, as in the batches of TRL.
//
// A sample occupies its planned, aligned length; the rest of that is padding at its end. T is the sum of the
// lengths, or pad_to; L is the greatest length, or pad_to / B. A microbatch without samples is a masked
// dummy. Padding has the pad token, label -100 and type 0. Positions of padding: packed, they continue to
// count (a segment of padding counts from 0); padded, they are 1 with attention_mask 0, as in the models' own
// code.
//
// Thread safety: MakeLlmTask is a function without state; for the task see stream/part_task.h.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "stream/part_events.h"
#include "stream/part_task.h"
#include "stream/stream.h"

namespace evenkeel::stream {

// `samples`: the microbatch's (indices into plan.samples), by position. Arguments other than `plan` must
// outlive the task; `events` may be null.
absl::StatusOr<std::unique_ptr<PartTask>> MakeLlmTask(const Stream& stream,
                                                      std::shared_ptr<const StepPlan> plan,
                                                      const PartName& name, std::span<const uint32_t> samples,
                                                      PartEvents* events);

}  // namespace evenkeel::stream
