// Translates samples to a packing problem, and puts heavy bins together.
#include "stream/bin_packer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/keyed_shuffle.h"
#include "reorder/pack/bin_lengths.h"

namespace evenkeel::stream {
namespace {

using Bins = std::vector<std::vector<uint32_t>>;

// OmniBal's own setting.
constexpr uint32_t kOmnibalIterations = 50;

// The cost of a bin's attention, in squares of mean samples, if it has a heavy sample; else 0.
double HeavyAttention(std::span<const SampleLengths> lengths, const std::vector<uint32_t>& bin, double mean,
                      double heavy) {
  double attention = 0, longest = 0;
  for (uint32_t sample : bin) {
    const double length = lengths[sample].llm_length / mean;
    attention += length * length;
    longest = std::max(longest, length);
  }
  return longest > heavy ? attention : 0;
}

// The bins with heavy samples, heaviest first, fill steps of their own; the steps are then put in an order by the key.
Bins HeavyTogether(std::span<const SampleLengths> lengths, double heavy, size_t bins_of_step, uint64_t key,
                   Bins bins) {
  double total = 0;
  for (const SampleLengths& of_sample : lengths) total += of_sample.llm_length;
  const double mean = std::max(1.0, total / static_cast<double>(std::max<size_t>(1, lengths.size())));
  std::vector<std::pair<double, uint32_t>>
      order;  // (-attention, bin): others stay in the order that they have
  for (uint32_t b = 0; b < bins.size(); ++b)
    order.emplace_back(-HeavyAttention(lengths, bins[b], mean, heavy), b);
  std::sort(order.begin(), order.end());
  reorder::KeyedNumbers numbers(key);
  const std::vector<uint32_t> steps =
      reorder::ShuffledOrder(static_cast<uint32_t>(bins.size() / bins_of_step), numbers);
  Bins out;
  for (uint32_t step : steps) {
    for (size_t b = 0; b < bins_of_step; ++b)
      out.push_back(std::move(bins[order[step * bins_of_step + b].second]));
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<reorder::PackPhase>> PackPhasesOf(const Job& job,
                                                             std::span<const SampleLengths> lengths) {
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<reorder::PackPhase> phases, reorder::BinLengths(job.phases, lengths));
  for (reorder::PackPhase& phase : phases) phase.capacity = job.batch.pack.CapacityOf(phase.phase.name());
  return phases;
}

absl::Status BinPacker::Check(const SampleLengths& lengths) const {
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<reorder::PackPhase> phases, PackPhasesOf(job_, {&lengths, 1}));
  for (const reorder::PackPhase& phase : phases) {
    if (phase.capacity == 0 || phase.lengths.front() <= phase.capacity) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        phase.lengths.front(), " in phase ", std::string(PhaseName(phase.phase)),
        ", more than a bin's capacity of ", phase.capacity,
        "; raise it in batch.pack.capacities, or leave the sample out with datasets[].where or exclude"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Bins> BinPacker::Pack(std::span<const SampleLengths> lengths, uint64_t key) const {
  const PackSpec& spec = job_.batch.pack;
  reorder::PackInput input{.algorithm = spec.algorithm,
                           .devices = spec.bins,
                           .seed = key,
                           .iterations = kOmnibalIterations,
                           .multiple = spec.bins};
  EVENKEEL_ASSIGN_OR_RETURN(input.phases, PackPhasesOf(job_, lengths));
  EVENKEEL_ASSIGN_OR_RETURN(const reorder::Packing packing, reorder::Pack(input));
  Bins bins = reorder::SamplesOfBins(packing, spec.bins);
  if (job_.order.heavy > 0) {
    return HeavyTogether(lengths, job_.order.heavy, spec.bins, key, std::move(bins));
  }
  return bins;
}

}  // namespace evenkeel::stream
