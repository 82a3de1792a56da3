// What packing sees of samples: the lengths of each in every phase of a job.
//
// Thread safety: a pure function.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/plan.h"
#include "reorder/pack/pack.h"

namespace evenkeel::reorder {

// [phases], without capacities. Of the llm tokens, each sample's rounded up to a multiple of `align`; of an encoder the
// lengths of its cost. InvalidArgument: an item that no phase encodes.
absl::StatusOr<std::vector<PackPhase>> BinLengths(std::span<const PhaseSpec> phases,
                                                  std::span<const SampleLengths> lengths, uint32_t align = 1);

}  // namespace evenkeel::reorder
