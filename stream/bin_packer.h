// Packs a window's samples into the bins of a job (`batch.pack`), with the planner's packing.
//
// Where the job groups heavy samples (`order.heavy`, in mean samples), the bins with such samples come in as
// few steps as they need: attention costs the square of a length, so a step waits for its longest sample.
//
// Example:
//     const BinPacker packer(job);
//     EVENKEEL_ASSIGN_OR_RETURN(const auto bins, packer.Pack(lengths, /*key=*/7));
//     const std::vector<uint32_t>& first_bin = bins[0];  // places in `lengths`
//
// Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/plan.h"
#include "dataset/order/packer.h"
#include "reorder/pack/pack.h"

namespace evenkeel::stream {

// [phases] What packing sees of samples: the lengths of each in every phase of the job, whose capacities are the job's where
// it gives them. InvalidArgument: an item that no phase encodes.
absl::StatusOr<std::vector<reorder::PackPhase>> PackPhasesOf(const Job& job,
                                                             std::span<const SampleLengths> lengths);

class BinPacker : public dataset::Packer {
 public:
  // `job` has passed reorder::CheckJob.
  explicit BinPacker(const Job& job) : job_(job) {}

  absl::StatusOr<std::vector<std::vector<uint32_t>>> Pack(std::span<const SampleLengths> lengths,
                                                          uint64_t key) const override;
  absl::Status Check(const SampleLengths& lengths) const override;

 private:
  const Job job_;
};

}  // namespace evenkeel::stream
