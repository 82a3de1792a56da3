// step -> samples, in time independent of the step. The order is a function of (seed, epoch), never of who
// reads.
//
// Thread safety: Samples() is const and may be called from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/plan.h"
#include "core/words.h"
#include "dataset/index.h"

namespace evenkeel {

class Sampler {
 public:
  virtual ~Sampler() = default;

  // `index` must outlive the sampler. For a budget of llm tokens the table that maps steps to windows is
  // compiled (or loaded from the index folder) on first use of an epoch. FailedPrecondition: a dataset with a
  // positive weight has no sample.
  static absl::StatusOr<std::unique_ptr<Sampler>> Make(const Job& job, const Index& index);

  // The global batch of a step with its lengths, in the sampler's order.
  virtual absl::StatusOr<StepSamples> Samples(uint64_t step) const = 0;
};

}  // namespace evenkeel
