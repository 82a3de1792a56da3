// The endless sequence of draws: position -> (dataset, epoch, row), in time independent of the position.
//
// Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>
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
  Draws(const Job& job, Mixture mixture, std::vector<uint64_t> sizes)
      : order_(job.order), seed_(job.seed), mixture_(std::move(mixture)), sizes_(std::move(sizes)) {}

  OrderSpec order_;
  uint64_t seed_;
  Mixture mixture_;
  std::vector<uint64_t> sizes_;  // samples of each dataset
};

}  // namespace evenkeel::dataset
