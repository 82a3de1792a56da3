// The tokens of the llm that the planner counts for a sample.
//
// Example:
//     uint64_t tokens = PlannedTokens(lengths, job.microbatch.align, Batching::kPadded).tokens;
// Thread safety: a pure function.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/job.h"
#include "core/words.h"

namespace evenkeel {

// A sample's tokens and, of a preference pair, those of its chosen sequence among them; 0: no pair.
struct PlannedLength {
  uint64_t tokens = 0;
  uint64_t chosen = 0;
};

// Packed: every sequence rounded up to a multiple of `align`, which is above 0. Padded: both sequences of a pair are rows,
// as long as the longer at least, so that a batch of samples never takes more than their number times their longest.
inline PlannedLength PlannedTokens(const SampleLengths& lengths, uint64_t align, Batching batching) {
  if (lengths.chosen_length == 0) return {AlignedLength(uint64_t{lengths.llm_length}, align), 0};
  const uint64_t chosen = AlignedLength(uint64_t{lengths.chosen_length}, align);
  const uint64_t rejected = AlignedLength(uint64_t{lengths.llm_length - lengths.chosen_length}, align);
  const uint64_t longer = std::max(chosen, rejected);
  if (batching == Batching::kPadded) return {2 * longer, longer};
  return {chosen + rejected, chosen};
}

}  // namespace evenkeel
