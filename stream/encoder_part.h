// Builds parts of an encoder phase: the items of one rank and microbatch, field by field.
//
// Per medium of the phase that has items in the part (images, then videos; or audio): the processor's fields,
// items concatenated along axis 0 in the order of their positions. Then, for all items of the part:
//   item_valid u8  [n]   0: the item could not be decoded, or is a dummy; its rows are all zero
//   item_rows  i64 [n]   output_rows of each item
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "stream/part_events.h"
#include "stream/part_task.h"
#include "stream/stream.h"

namespace evenkeel::stream {

// Cuts `items` (indices into plan.items) so that no piece is larger than kMaxPieceBytes, unless a single item
// is: [begin, end) of each piece. Empty if there are no items.
std::vector<std::pair<size_t, size_t>> CutPieces(const preprocess::Processor& processor, const Plan& plan,
                                                 std::span<const uint32_t> items);

// `items`: those of the piece. Arguments other than `plan` must outlive the task; `events` may be null.
absl::StatusOr<std::unique_ptr<PartTask>> MakeEncoderTask(const Stream& stream,
                                                          std::shared_ptr<const StepPlan> plan,
                                                          const PartName& name, uint32_t num_pieces,
                                                          std::span<const uint32_t> items,
                                                          PartEvents* events);

}  // namespace evenkeel::stream
