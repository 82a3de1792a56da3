// Puts the heavy samples of a window together, and reads windows as they are asked for.
#include "dataset/order/draw_order.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "core/status.h"
#include "dataset/order/index_order.h"
#include "dataset/order/permutation.h"

namespace evenkeel::dataset {
namespace {

constexpr size_t kRecentWindows = 4;
constexpr uint64_t kLevelKey = 0x6c6576656c;  // apart from the keys of other permutations

// The llm, and every medium of items, whose numbers are 1 to 3.
constexpr size_t kKinds = 1 + kItemMedia.size();

using Shares = std::array<float, kKinds>;

Shares LengthsOf(const SampleLengths& lengths) {
  Shares out{};
  out[0] = static_cast<float>(lengths.llm_length);
  for (const SampleItem& item : lengths.items) {
    if (item.has_placeholders())
      out[static_cast<size_t>(item.medium)] += static_cast<float>(item.lengths.cost_length);
  }
  return out;
}

uint64_t WindowOf(const Job& job) {
  // Bins are put together, and not draws (stream/bin_packer.h).
  if (!(job.order.heavy > 0) || job.batch.pack.bins > 0) return 0;
  return job.batch.samples > 0 ? uint64_t{job.order.level_steps} * job.batch.samples
                               : job.batch.window_samples;
}

// Where a window has the end of a dataset's epoch: its draws keep the places that they have in `order`, but those of the
// earlier epoch come first.
void KeepEpochs(std::span<const SampleRef> refs, std::vector<uint32_t>& order) {
  std::map<uint32_t, std::vector<size_t>> places;  // in `order`, by dataset
  for (size_t place = 0; place < order.size(); ++place) places[refs[order[place]].dataset].push_back(place);
  for (const auto& [dataset, of_dataset] : places) {
    std::vector<uint32_t> draws;
    for (size_t place : of_dataset) draws.push_back(order[place]);
    std::stable_sort(draws.begin(), draws.end(),
                     [&](uint32_t a, uint32_t b) { return refs[a].epoch < refs[b].epoch; });
    for (size_t i = 0; i < draws.size(); ++i) order[of_dataset[i]] = draws[i];
  }
}

// Deals the heavy draws, heaviest first, to as few steps as they need.
class Leveling {
 public:
  Leveling(std::span<const float> share, size_t kinds, const LevelSpec& spec)
      : share_(share), kinds_(kinds), spec_(spec), draws_(share.size() / kinds) {}

  std::vector<uint32_t> Run() {
    Sort();
    return spec_.samples == 0 ? InOneRun() : InSteps();
  }

 private:
  float HeaviestShare(uint32_t draw) const {
    const auto row = share_.subspan(draw * kinds_, kinds_);
    return *std::max_element(row.begin(), row.end());
  }

  void Sort() {
    std::vector<std::pair<float, uint32_t>> heavy;  // (-share, draw)
    for (uint32_t i = 0; i < draws_; ++i) {
      const float share = HeaviestShare(i);
      if (static_cast<double>(share) > spec_.heavy) {
        heavy.emplace_back(-share, i);
      } else {
        others_.push_back(i);
      }
    }
    std::sort(heavy.begin(), heavy.end());
    for (const auto& [share, draw] : heavy) heavy_.push_back(draw);
  }

  // A budget cuts the steps: the heavy draws are neighbours, somewhere in the window.
  std::vector<uint32_t> InOneRun() const {
    const uint64_t before = MixKey({spec_.key, kLevelKey}) % (others_.size() + 1);
    std::vector<uint32_t> order(others_.begin(), others_.begin() + static_cast<ptrdiff_t>(before));
    order.insert(order.end(), heavy_.begin(), heavy_.end());
    order.insert(order.end(), others_.begin() + static_cast<ptrdiff_t>(before), others_.end());
    return order;
  }

  // How many of the heavy draws from `first` on a step takes: as long as its mean rank, where a rank has spec.heavy samples,
  // stays lighter than its heaviest sample, so that they cost no time of their own.
  size_t CountFor(size_t first) const {
    const double most = static_cast<double>(HeaviestShare(heavy_[first])) * spec_.samples / spec_.heavy;
    std::vector<double> sum(kinds_, spec_.samples);  // the rest are mean samples
    size_t count = 0;
    for (; first + count < heavy_.size() && count < spec_.samples; ++count) {
      const auto row = share_.subspan(heavy_[first + count] * kinds_, kinds_);
      for (size_t k = 0; k < kinds_; ++k) sum[k] += static_cast<double>(row[k]) - 1;
      if (count > 0 && *std::max_element(sum.begin(), sum.end()) > most) break;
    }
    return count;
  }

  std::vector<uint32_t> InSteps() {
    const size_t steps = draws_ / spec_.samples;
    std::vector<std::span<const uint32_t>> heavy_of(steps);
    const Permutation step_of(MixKey({spec_.key, kLevelKey}), steps);
    size_t next = 0;
    for (size_t i = 0; i < steps && next < heavy_.size(); ++i) {
      const size_t count = CountFor(next);
      heavy_of[step_of.At(i)] = std::span(heavy_).subspan(next, count);
      next += count;
    }
    // More than the steps can take stay among the others, in the order in which they were drawn.
    others_.insert(others_.end(), heavy_.begin() + static_cast<ptrdiff_t>(next), heavy_.end());
    std::sort(others_.begin(), others_.end());
    std::vector<uint32_t> order;
    size_t other = 0;
    for (const std::span<const uint32_t> heavy : heavy_of) {
      order.insert(order.end(), heavy.begin(), heavy.end());
      for (size_t i = heavy.size(); i < spec_.samples; ++i) order.push_back(others_[other++]);
    }
    return order;
  }

  const std::span<const float> share_;  // [draws, kinds]
  const size_t kinds_;
  const LevelSpec& spec_;
  const size_t draws_;
  std::vector<uint32_t> heavy_, others_;  // the heaviest first; in the order of the draws
};

}  // namespace

std::vector<uint32_t> LevelWindow(std::vector<float> lengths, size_t kinds, const LevelSpec& spec) {
  const size_t draws = lengths.size() / kinds;
  for (size_t k = 0; k < kinds; ++k) {
    double sum = 0;  // in the order of the draws
    for (size_t i = 0; i < draws; ++i) sum += static_cast<double>(lengths[i * kinds + k]);
    const auto factor = static_cast<float>(sum > 0 ? static_cast<double>(draws) / sum : 0);
    for (size_t i = 0; i < draws; ++i) lengths[i * kinds + k] *= factor;
  }
  return Leveling(lengths, kinds, spec).Run();
}

absl::StatusOr<std::unique_ptr<DrawOrder>> DrawOrder::Make(const Job& job, const Index& index) {
  EVENKEEL_ASSIGN_OR_RETURN(Draws draws, Draws::Make(job, index));
  return std::unique_ptr<DrawOrder>(new DrawOrder(job, index, std::move(draws)));
}

DrawOrder::DrawOrder(const Job& job, const Index& index, Draws draws)
    : index_(index),
      draws_(std::move(draws)),
      window_(WindowOf(job)),
      seed_(job.seed),
      spec_{.samples = static_cast<uint32_t>(job.batch.samples), .heavy = job.order.heavy},
      recent_(kRecentWindows) {}

absl::StatusOr<SampleRef> DrawOrder::At(uint64_t position) const {
  if (window_ == 0) return draws_.At(position);
  EVENKEEL_ASSIGN_OR_RETURN(const Window window, WindowAt(position / window_));
  return draws_.At(position - position % window_ + (*window)[position % window_]);
}

absl::StatusOr<std::vector<SampleRef>> DrawOrder::Run(uint64_t first, uint64_t count) const {
  std::vector<SampleRef> refs;
  count = std::min(count, end() - std::min(first, end()));
  refs.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    EVENKEEL_ASSIGN_OR_RETURN(refs.emplace_back(), At(first + i));
  }
  return refs;
}

absl::StatusOr<DrawOrder::Window> DrawOrder::WindowAt(uint64_t number) const {
  if (Window kept = recent_.Find(number)) return kept;
  EVENKEEL_ASSIGN_OR_RETURN(Window window, MakeWindow(number));
  return recent_.Keep(number, std::move(window));
}

absl::StatusOr<DrawOrder::Window> DrawOrder::MakeWindow(uint64_t number) const {
  // A last window that is not whole keeps the order of its draws: nothing may follow the end.
  if (number * window_ + window_ > end()) {
    std::vector<uint32_t> order(window_);
    std::iota(order.begin(), order.end(), 0);
    return std::make_shared<const std::vector<uint32_t>>(std::move(order));
  }
  std::vector<SampleRef> refs;
  for (uint64_t i = 0; i < window_; ++i) refs.push_back(draws_.At(number * window_ + i));
  std::vector<float> all(window_ * kKinds, 0);
  EVENKEEL_RETURN_IF_ERROR(VisitInIndexOrder(refs, [&](size_t i) -> absl::Status {
    EVENKEEL_ASSIGN_OR_RETURN(const SampleLengths lengths, index_.lengths(refs[i].dataset, refs[i].index));
    const Shares of_draw = LengthsOf(lengths);
    std::copy(of_draw.begin(), of_draw.end(), all.begin() + static_cast<ptrdiff_t>(i * kKinds));
    return absl::OkStatus();
  }));
  LevelSpec spec = spec_;
  spec.key = MixKey({seed_, number});
  std::vector<uint32_t> order = LevelWindow(std::move(all), kKinds, spec);
  KeepEpochs(refs, order);
  return std::make_shared<const std::vector<uint32_t>>(std::move(order));
}

}  // namespace evenkeel::dataset
