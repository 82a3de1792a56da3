// Steps to samples, in a time that does not depend on the step; with a budget of llm tokens or bins, once the table
// of steps reaches the step. The order is a function of (seed, epoch) and never of the reader.
//
// Thread safety: Samples() is const and may be called from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/plan.h"
#include "core/words.h"
#include "dataset/index/index.h"
#include "dataset/order/packer.h"

namespace evenkeel::dataset {

class Sampler {
 public:
  virtual ~Sampler() = default;

  // `job` and `index` must outlive the sampler. With a budget of llm tokens or bins, the table that maps steps to windows is
  // compiled (or loaded from the index folder) as steps are requested. `packer`: of a job with batch.pack.
  // FailedPrecondition: a dataset with a positive weight has no sample. InvalidArgument: the packer is missing.
  static absl::StatusOr<std::unique_ptr<Sampler>> Make(const Job& job, const Index& index,
                                                       std::unique_ptr<const Packer> packer = nullptr);

  // The global batch of a step with its lengths, in the sampler's order. OutOfRange: the step is too large,
  // or too far from the known steps (names the largest step that can be requested), or the stream has ended (names its
  // number of steps). A status of FailureKind::kNotYet, returned after little work: Extend(step) must return true first.
  virtual absl::StatusOr<StepSamples> Samples(uint64_t step) const = 0;
  // Does a bounded amount of the work for Samples(step), about 0.2 s, with bins up to one window's: 0.3 to 2 s. True: the step can be answered now. May
  // run at the same time as Samples, whose other steps do not wait for it.
  virtual absl::StatusOr<bool> Extend(uint64_t step) const {
    static_cast<void>(step);
    return true;
  }
  // Of the stream; nullopt: it has no end, since a dataset has no max_epochs. Works until the end is known. FailedPrecondition:
  // it ends before the first step, or after more than kMaxAheadDraws draws and steps are not numbers of samples.
  virtual absl::StatusOr<std::optional<uint64_t>> NumSteps() const { return std::nullopt; }
};

}  // namespace evenkeel::dataset
