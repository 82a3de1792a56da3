// step -> samples, in time independent of the step; for a budget of llm tokens once the table of windows
// reaches it. The order is a function of (seed, epoch), never of who reads.
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
#include "dataset/index/index.h"

namespace evenkeel::dataset {

class Sampler {
 public:
  virtual ~Sampler() = default;

  // `index` must outlive the sampler. For a budget of llm tokens the table that maps steps to windows is
  // compiled (or loaded from the index folder) as steps are asked for. FailedPrecondition: a dataset with a
  // positive weight has no sample.
  static absl::StatusOr<std::unique_ptr<Sampler>> Make(const Job& job, const Index& index);

  // The global batch of a step with its lengths, in the sampler's order. OutOfRange: the step is beyond any
  // training, or too far from what is known (names the largest step that can be asked for). A status of
  // FailureKind::kNotYet, after little work: Extend(step) must return true first.
  virtual absl::StatusOr<StepSamples> Samples(uint64_t step) const = 0;
  // Brings Samples(step) nearer by a bounded amount of work, about 0.2 s. True: it answers now. Safe to call
  // beside Samples, whose other steps do not wait for it.
  virtual absl::StatusOr<bool> Extend(uint64_t step) const {
    static_cast<void>(step);
    return true;
  }
};

}  // namespace evenkeel::dataset
