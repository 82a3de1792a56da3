// Maps positions to datasets, epochs and rows by a mixture and one epoch order per dataset.
#include "dataset/order/draws.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "dataset/order/epoch_order.h"

namespace evenkeel::dataset {

absl::StatusOr<Draws> Draws::Make(const Job& job, const Index& index) {
  std::vector<double> weights;
  std::vector<uint64_t> sizes;
  size_t positive = 0;
  for (uint32_t d = 0; d < job.datasets.size(); ++d) {
    double weight = job.datasets[d].weight;
    if (!std::isfinite(weight) || weight < 0) {
      return absl::InvalidArgumentError(absl::StrCat(job.path, ": dataset '", job.datasets[d].name,
                                                     "': the weight is not a finite number from 0 up"));
    }
    weights.push_back(weight);
    sizes.push_back(index.num_samples(d));
    positive += weight > 0;
    if (weight > 0 && sizes.back() == 0) {
      const LeftOut left_out = index.left_out(d);
      const std::string why =
          left_out.by_where + left_out.by_split > 0
              ? absl::StrCat("no sample to draw: its `where` leaves out ", left_out.by_where,
                             ", and of the others ", left_out.by_split, " are not in the split")
              : "a weight but no usable sample; 'evenkeel index' prints the reasons";
      return absl::FailedPreconditionError(
          absl::StrCat(job.path, ": dataset '", job.datasets[d].name, "' has ", why));
    }
  }
  if (positive == 0 || positive > kMaxPeriod) {
    return absl::InvalidArgumentError(
        absl::StrCat(job.path, ": ", positive, " datasets with a positive weight"));
  }
  return Draws(job, Mixture(weights), std::move(sizes));
}

SampleRef Draws::At(uint64_t position) const {
  Mixture::Draw draw = mixture_.At(position);
  uint64_t size = sizes_[draw.dataset];
  uint64_t epoch = draw.number / size;
  return {draw.dataset, epoch, EpochOrder(order_, seed_, draw.dataset, epoch, size).At(draw.number % size)};
}

}  // namespace evenkeel::dataset
