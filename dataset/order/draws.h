// The sequence of draws, endless unless every dataset has a last epoch (max_epochs): position -> (dataset, epoch, row), in
// time independent of the position. Where weights change, every dataset goes on in its epoch, so that what comes before a
// change does not depend on it.
//
// Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/words.h"
#include "dataset/index/index.h"
#include "dataset/order/mixture.h"

namespace evenkeel::dataset {

class Draws {
 public:
  // FailedPrecondition: a dataset with a positive weight has no sample. InvalidArgument: no positive weight, or all datasets
  // with one have had their epochs and another begins later.
  static absl::StatusOr<Draws> Make(const Job& job, const Index& index);

  // position < end().
  SampleRef At(uint64_t position) const;
  // The number of draws; kNever: there is no end.
  uint64_t end() const { return end_; }

 private:
  // Draws from `first` on, until the next one's. A stage begins where weights change and where a dataset has had its epochs.
  struct Stage {
    uint64_t first = 0;
    Mixture mixture;
    std::vector<uint64_t> before;  // draws of each dataset in earlier stages
  };

  Draws(const Job& job, std::vector<uint64_t> sizes)
      : order_(job.order), seed_(job.seed), sizes_(std::move(sizes)) {}

  absl::Status AddStages(const Job& job, const Index& index);

  OrderSpec order_;
  uint64_t seed_;
  std::vector<Stage> stages_;  // the first one begins at 0
  uint64_t end_ = kNever;
  std::vector<uint64_t> sizes_;  // samples of each dataset
};

}  // namespace evenkeel::dataset
