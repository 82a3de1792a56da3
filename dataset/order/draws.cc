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

// Of the datasets that have not had their epochs; all 0: none is left. `last`: draws of each dataset that end it.
absl::StatusOr<std::vector<double>> WeightsAt(const Job& job, const Index& index, uint64_t draw,
                                              const std::vector<uint64_t>& before,
                                              const std::vector<uint64_t>& last) {
  std::vector<double> weights;
  std::ptrdiff_t positive = 0, left = 0;
  for (uint32_t d = 0; d < job.datasets.size(); ++d) {
    const DatasetSpec& dataset = job.datasets[d];
    const double samples = dataset.repeats ? static_cast<double>(index.num_samples(d)) : 1;
    const double weight = dataset.WeightAt(draw) * samples;
    if (!std::isfinite(weight) || weight < 0) {
      return absl::InvalidArgumentError(absl::StrCat(job.path, ": dataset '", dataset.name,
                                                     "': the weight is not a finite number from 0 up"));
    }
    weights.push_back(before[d] < last[d] ? weight : 0);
    positive += weight > 0;
    left += weights.back() > 0;
  }
  if (positive == 0 || left > static_cast<std::ptrdiff_t>(kMaxPeriod)) {
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

// How many draws of a dataset are its epochs; kNever: no end.
uint64_t LastDraw(const DatasetSpec& dataset, uint64_t samples) {
  if (!(dataset.max_epochs > 0)) return kNever;
  return std::max<uint64_t>(
      1, static_cast<uint64_t>(std::llround(dataset.max_epochs * static_cast<double>(samples))));
}

// A stream that ended would begin again.
absl::Status CheckNothingFollows(const Job& job, uint64_t end, uint64_t change) {
  if (change == kNever) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(job.path, ": every dataset with a weight has had its max_epochs at draw ", end,
                   ", and weights change at draw ", change,
                   " once more; give one of them more epochs, or let the change come earlier"));
}

}  // namespace

absl::StatusOr<Draws> Draws::Make(const Job& job, const Index& index) {
  for (uint32_t d = 0; d < job.datasets.size(); ++d) {
    if (job.datasets[d].repeats && job.datasets[d].weight > 0)
      EVENKEEL_RETURN_IF_ERROR(CheckSamples(job, index, d));
  }
  std::vector<uint64_t> sizes;
  for (uint32_t d = 0; d < job.datasets.size(); ++d) sizes.push_back(index.num_samples(d));
  Draws draws(job, std::move(sizes));
  EVENKEEL_RETURN_IF_ERROR(draws.AddStages(job, index));
  return draws;
}

absl::Status Draws::AddStages(const Job& job, const Index& index) {
  std::vector<uint64_t> before(sizes_.size(), 0), last;
  for (uint32_t d = 0; d < sizes_.size(); ++d) last.push_back(LastDraw(job.datasets[d], sizes_[d]));
  const std::set<uint64_t> changes = Firsts(job);
  for (uint64_t first = 0; first < kNever;) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::vector<double> weights, WeightsAt(job, index, first, before, last));
    const auto change = changes.upper_bound(first);
    uint64_t next = change == changes.end() ? kNever : *change;
    if (std::all_of(weights.begin(), weights.end(), [](double weight) { return weight == 0; })) {
      end_ = first;
      return CheckNothingFollows(job, first, next);
    }
    std::vector<uint64_t> left(sizes_.size(), kNever);
    for (uint32_t d = 0; d < weights.size(); ++d) {
      if (weights[d] > 0) EVENKEEL_RETURN_IF_ERROR(CheckSamples(job, index, d));
      if (last[d] != kNever) left[d] = std::max<uint64_t>(1, last[d] - before[d]);
    }
    stages_.push_back({.first = first, .mixture = Mixture(weights), .before = before});
    const Mixture& mixture = stages_.back().mixture;
    next = std::min(next, first + mixture.FirstAfter(left));
    for (uint32_t d = 0; d < before.size(); ++d) before[d] += mixture.CountBefore(d, next - first);
    first = next;
  }
  return absl::OkStatus();
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
