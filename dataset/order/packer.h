// Puts samples into bins, of which a step has a fixed number. Packing is planning, which this room does not know:
// stream/bin_packer.h has the implementation.
//
// Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/words.h"

namespace evenkeel::dataset {

class Packer {
 public:
  virtual ~Packer() = default;

  // [bins] The samples of each bin, as places in `lengths`: every place once, some bins perhaps empty. Bins are in the
  // order of the steps, and their number is a multiple of those of a step, above 0. A pure function of both arguments.
  // InvalidArgument: a sample that no bin can hold, for which Check has the words; or an item that no phase encodes.
  virtual absl::StatusOr<std::vector<std::vector<uint32_t>>> Pack(std::span<const SampleLengths> lengths,
                                                                  uint64_t key) const = 0;
  // InvalidArgument: no bin holds a sample of these lengths, even alone; the message names the phase of which it has too much.
  virtual absl::Status Check(const SampleLengths& lengths) const = 0;
};

}  // namespace evenkeel::dataset
