// The endless sequence of draws: position -> (dataset, epoch, row), in time independent of the position. Where weights
// change, every dataset goes on in its epoch, so that what comes before a change does not depend on it.
//
// Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/words.h"
#include "dataset/index/index.h"
#include "dataset/order/mixture.h"

namespace evenkeel::dataset {

class Draws {
 public:
  // FailedPrecondition: a dataset with a positive weight has no sample. InvalidArgument: no positive weight.
  static absl::StatusOr<Draws> Make(const Job& job, const Index& index);

  // position < 2^62.
  SampleRef At(uint64_t position) const;

 private:
  // Draws from `first` on, until the next one's.
  struct Stage {
    uint64_t first = 0;
    Mixture mixture;
    std::vector<uint64_t> before;  // draws of each dataset in earlier stages
  };

  Draws(const Job& job, std::vector<Stage> stages, std::vector<uint64_t> sizes)
      : order_(job.order), seed_(job.seed), stages_(std::move(stages)), sizes_(std::move(sizes)) {}

  OrderSpec order_;
  uint64_t seed_;
  std::vector<Stage> stages_;    // of different weights; the first one begins at 0
  std::vector<uint64_t> sizes_;  // samples of each dataset
};

}  // namespace evenkeel::dataset
