// Maps positions to datasets, epochs and rows by a mixture for each stage and one epoch order per dataset.
#include "dataset/order/draws.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "dataset/order/epoch_order.h"

namespace evenkeel::dataset {
namespace {

// The draws at which weights change, and the first one.
std::set<uint64_t> Firsts(const Job& job) {
  std::set<uint64_t> firsts = {0};
  for (const DatasetSpec& dataset : job.datasets) {
    for (const WeightChange& change : dataset.changes) firsts.insert(change.from_draw);
  }
  return firsts;
}

absl::StatusOr<std::vector<double>> WeightsAt(const Job& job, const Index& index, uint64_t draw) {
  std::vector<double> weights;
  for (uint32_t d = 0; d < job.datasets.size(); ++d) {
    const DatasetSpec& dataset = job.datasets[d];
    const double samples = dataset.repeats ? static_cast<double>(index.num_samples(d)) : 1;
    weights.push_back(dataset.WeightAt(draw) * samples);
    if (std::isfinite(weights.back()) && weights.back() >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(job.path, ": dataset '", dataset.name,
                                                   "': the weight is not a finite number from 0 up"));
  }
  const auto positive =
      std::count_if(weights.begin(), weights.end(), [](double weight) { return weight > 0; });
  if (positive == 0 || positive > static_cast<ptrdiff_t>(kMaxPeriod)) {
    return absl::InvalidArgumentError(
        absl::StrCat(job.path, ": ", positive, " datasets with a positive weight"));
  }
  return weights;
}

absl::Status CheckSamples(const Job& job, const Index& index, uint32_t dataset) {
  if (index.num_samples(dataset) > 0) return absl::OkStatus();
  const LeftOut left_out = index.left_out(dataset);
  const std::string why =
      left_out.by_where + left_out.by_split > 0
          ? absl::StrCat("no sample to draw: its `where` leaves out ", left_out.by_where,
                         ", and of the others ", left_out.by_split, " are not in the split")
          : "a weight but no usable sample; 'evenkeel index' prints the reasons";
  return absl::FailedPreconditionError(
      absl::StrCat(job.path, ": dataset '", job.datasets[dataset].name, "' has ", why));
}

}  // namespace

absl::StatusOr<Draws> Draws::Make(const Job& job, const Index& index) {
  for (uint32_t d = 0; d < job.datasets.size(); ++d) {
    if (job.datasets[d].repeats && job.datasets[d].weight > 0)
      EVENKEEL_RETURN_IF_ERROR(CheckSamples(job, index, d));
  }
  std::vector<Stage> stages;
  for (const uint64_t first : Firsts(job)) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::vector<double> weights, WeightsAt(job, index, first));
    std::vector<uint64_t> before(weights.size(), 0);
    for (uint32_t d = 0; d < weights.size(); ++d) {
      if (weights[d] > 0) EVENKEEL_RETURN_IF_ERROR(CheckSamples(job, index, d));
      if (stages.empty()) continue;
      const Stage& last = stages.back();
      before[d] = last.before[d] + last.mixture.CountBefore(d, first - last.first);
    }
    stages.push_back({.first = first, .mixture = Mixture(weights), .before = std::move(before)});
  }
  std::vector<uint64_t> sizes;
  for (uint32_t d = 0; d < job.datasets.size(); ++d) sizes.push_back(index.num_samples(d));
  return Draws(job, std::move(stages), std::move(sizes));
}

SampleRef Draws::At(uint64_t position) const {
  const auto after = std::upper_bound(stages_.begin(), stages_.end(), position,
                                      [](uint64_t draw, const Stage& stage) { return draw < stage.first; });
  const Stage& stage = *std::prev(after);
  const Mixture::Draw draw = stage.mixture.At(position - stage.first);
  const uint64_t number = stage.before[draw.dataset] + draw.number;
  const uint64_t size = sizes_[draw.dataset];
  const uint64_t epoch = number / size;
  return {draw.dataset, epoch, EpochOrder(order_, seed_, draw.dataset, epoch, size).At(number % size)};
}

}  // namespace evenkeel::dataset
