// Sorts bins, lets them meet in pairs, and finds for a pair the bundles whose exchange leaves least above the
// levels.
#include "reorder/pack/pack_exchange.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace evenkeel::reorder {
namespace {

// A round deals to this part of the bins.
constexpr size_t kRoundsPerBins = 4;

// Bins that differ by less than this share of the mean, weighted, are alike; and an exchange must bring them
// nearer by more than a rounding.
constexpr float kAlike = 0.001f;
constexpr float kNearer = 0.999f;

// What two bins may offer each other.
constexpr size_t kMaxBundles = 48;

// What a load off the middle counts where it is above no level.
constexpr float kSoft = 0.002f;

// Of one phase, where one bin has `off` more than the mean of the two and the other as much less, in shares
// of a bin's mean load: the first has room for middle + half more than that mean, the second for half -
// middle. What is beyond exceeds a level.
float Loss(float off, float middle, float half) {
  const float beyond = std::max(0.0f, std::abs(off - middle) - half);
  return beyond * beyond + kSoft * (off * off);
}

double LargestShare(int num_phases, const PhaseLoads& load, const PhaseLoads& to_share) {
  double share = 0;
  for (int p = 0; p < num_phases; ++p) share = std::max(share, load[p] * to_share[p]);
  return share;
}

uint64_t KeyedByLoad(double load, uint32_t number) {
  return Keyed(OrderedBits(static_cast<float>(load)), number);
}

// By load; where they are many, loads that differ by less than a ten-thousandth stay in their order.
void SortByLoad(std::vector<uint64_t>& keyed) {
  constexpr size_t kMany = 512;
  constexpr int kLowestBit = 42;
  if (keyed.size() < kMany) {
    std::sort(keyed.begin(), keyed.end());
  } else {
    std::stable_sort(keyed.begin(), keyed.end(),
                     [](uint64_t a, uint64_t b) { return a >> kLowestBit < b >> kLowestBit; });
  }
}

}  // namespace

// Up to two samples that a bin could give away: their places in it, and what they have of each phase as
// weighted shares.
struct ExchangingBins::Bundle {
  std::array<uint32_t, 2> place{};  // ascending
  uint32_t size = 0;
  std::array<float, kMaxPhases> share{};

  std::span<const uint32_t> places() const { return {place.data(), size}; }
};

// What should go from one bin to the other in each phase, and the two other arguments of Loss; and what the
// two bins lose as they are: in all, and by what exceeds a level alone.
struct ExchangingBins::Gap {
  std::array<float, kMaxPhases> left{}, middle{}, half{};
  float loss = 0, above = 0;

  // Pairs cost more, and are for those that exceed a level.
  bool IsWorthAnExchange(const Aim& aim) const { return (aim.pairs ? above : loss) >= kAlike * kAlike; }
};

ExchangingBins::ExchangingBins(const PackProblem& problem, size_t num_bins)
    : problem_(problem), bins_(num_bins) {
  for (int p = 0; p < problem.num_phases; ++p) {
    if (problem.total[p] > 0) to_share_[p] = static_cast<double>(num_bins) / problem.total[p];
  }
}

ExchangingBins::ExchangingBins(const PackProblem& problem, const Bins& bins)
    : ExchangingBins(problem, bins.size()) {
  for (size_t b = 0; b < bins.size(); ++b) {
    for (uint32_t sample : bins[b]) Put(bins_[b], sample);
  }
}

void ExchangingBins::Put(Bin& bin, uint32_t sample) {
  bin.samples.push_back(sample);
  Add(problem_, bin.load, problem_.lengths[sample]);
}

void ExchangingBins::Deal() {
  PhaseLoads mean{};
  for (int p = 0; p < problem_.num_phases; ++p) mean[p] = to_share_[p] > 0 ? 1 / to_share_[p] : 0;
  const std::vector<uint32_t> order = LargestShareFirst(problem_, mean);
  const size_t round = std::max<size_t>(1, bins_.size() / kRoundsPerBins);
  std::vector<uint64_t> all(bins_.size()), takers, samples;
  // With one phase or two, its turns are followed by one in which nothing is compared with it.
  const int turns = std::max(3, problem_.num_phases);
  int phase = 0;
  for (size_t dealt = 0; dealt < order.size(); dealt += samples.size()) {
    const size_t count = std::min(round, order.size() - dealt);
    for (uint32_t b = 0; b < bins_.size(); ++b) {
      all[b] = KeyedByLoad(LargestShare(problem_.num_phases, bins_[b].load, to_share_), b);
    }
    if (count < bins_.size()) SortByLoad(all);
    // Much of this phase and little of the next goes to the bin that has it the other way round.
    const int first = phase, second = (phase + 1) % turns;
    phase = second;
    takers.resize(count), samples.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bin = NumberOf(all[i]), sample = order[dealt + i];
      const PhaseLoads& load = bins_[bin].load;
      const uint32_t* const lengths = problem_.lengths[sample];
      const auto length = [&](int p) { return p < problem_.num_phases ? to_share_[p] * lengths[p] : 0.0; };
      const double has = to_share_[first] * load[first] - to_share_[second] * load[second];
      const double brings = length(second) - length(first);
      takers[i] = KeyedByLoad(has, bin);
      samples[i] = KeyedByLoad(brings, sample);
    }
    SortByLoad(takers);
    SortByLoad(samples);
    for (size_t i = 0; i < count; ++i) {
      Put(bins_[NumberOf(takers[i])], NumberOf(samples[i]));
    }
  }
}

// The empty bundle, then single samples, then pairs. A bin with many samples offers the first ones.
std::vector<ExchangingBins::Bundle> ExchangingBins::BundlesOf(const Bin& bin, const Aim& aim) const {
  std::vector<Bundle> bundles(1);
  const size_t singles = std::min(bin.samples.size(), kMaxBundles - 1);
  for (uint32_t i = 0; i < singles; ++i) {
    Bundle& single = bundles.emplace_back(Bundle{.place = {i}, .size = 1});
    const uint32_t* const length = problem_.lengths[bin.samples[i]];
    for (int p = 0; p < problem_.num_phases; ++p) {
      single.share[p] = static_cast<float>(aim.weight[p] * to_share_[p]) * static_cast<float>(length[p]);
    }
  }
  for (uint32_t i = 0; aim.pairs && i < singles; ++i) {
    for (uint32_t j = i + 1; j < singles && bundles.size() < kMaxBundles; ++j) {
      Bundle& pair = bundles.emplace_back(Bundle{.place = {i, j}, .size = 2});
      for (int p = 0; p < problem_.num_phases; ++p) {
        pair.share[p] = bundles[i + 1].share[p] + bundles[j + 1].share[p];
      }
    }
  }
  return bundles;
}

PhaseLengths ExchangingBins::LongestOf(const Bin& bin) const {
  PhaseLengths longest{};
  for (uint32_t sample : bin.samples) {
    for (int p = 0; p < problem_.num_phases; ++p) {
      longest[p] = std::max(longest[p], problem_.lengths[sample][p]);
    }
  }
  return longest;
}

ExchangingBins::Gap ExchangingBins::GapOf(const Bin& a, const PhaseLengths& longest_a, const Bin& b,
                                          const PhaseLengths& longest_b, const Aim& aim) const {
  Gap gap;
  for (int p = 0; p < problem_.num_phases; ++p) {
    const double mean = (a.load[p] + b.load[p]) / 2 * to_share_[p];
    const auto room = [&](uint32_t longest) {
      return aim.weight[p] * (std::max(aim.level[p], longest * to_share_[p]) - mean);
    };
    const double room_a = room(longest_a[p]), room_b = room(longest_b[p]);
    gap.left[p] = static_cast<float>(aim.weight[p] * to_share_[p] * (a.load[p] - b.load[p]) / 2);
    gap.middle[p] = static_cast<float>((room_a - room_b) / 2);
    gap.half[p] = static_cast<float>((room_a + room_b) / 2);
    const float loss = Loss(gap.left[p], gap.middle[p], gap.half[p]);
    gap.loss += loss;
    gap.above += loss - kSoft * (gap.left[p] * gap.left[p]);
  }
  return gap;
}

// Whether neither bin exceeds a capacity after the exchange, or no further than before.
bool ExchangingBins::KeepCapacities(const Bin& a, const Bundle& given, const Bin& b,
                                    const Bundle& taken) const {
  for (int p = 0; p < problem_.num_phases; ++p) {
    double to_b = 0;
    for (uint32_t i : given.places()) to_b += problem_.lengths[a.samples[i]][p];
    for (uint32_t j : taken.places()) to_b -= problem_.lengths[b.samples[j]][p];
    if (to_b > 0 && b.load[p] + to_b > problem_.capacity[p]) return false;
    if (to_b < 0 && a.load[p] - to_b > problem_.capacity[p]) return false;
  }
  return true;
}

bool ExchangingBins::Exchange(Bin& a, Bin& b, const Aim& aim) {
  const Gap gap = GapOf(a, LongestOf(a), b, LongestOf(b), aim);
  if (!gap.IsWorthAnExchange(aim)) return false;
  const std::vector<Bundle> from_a = BundlesOf(a, aim), from_b = BundlesOf(b, aim);
  float best = gap.loss * kNearer;
  const Bundle *give = nullptr, *take = nullptr;
  for (const Bundle& given : from_a) {
    for (const Bundle& taken : from_b) {
      float loss = 0;  // no phase makes it less
      for (int p = 0; p < problem_.num_phases && loss < best; ++p) {
        loss += Loss(gap.left[p] - given.share[p] + taken.share[p], gap.middle[p], gap.half[p]);
      }
      if (loss >= best || (aim.keep_capacities && !KeepCapacities(a, given, b, taken))) continue;
      best = loss, give = &given, take = &taken;
    }
  }
  if (give == nullptr) return false;
  const auto remove = [&](Bin& bin, const Bundle& bundle) {
    std::vector<uint32_t> removed;
    // The later place first, so that the earlier one stays where it is; the last sample takes it.
    for (uint32_t k = bundle.size; k-- > 0;) {
      removed.push_back(bin.samples[bundle.place[k]]);
      Subtract(problem_, bin.load, problem_.lengths[removed.back()]);
      bin.samples[bundle.place[k]] = bin.samples.back();
      bin.samples.pop_back();
    }
    return removed;
  };
  const std::vector<uint32_t> given = remove(a, *give), taken = remove(b, *take);
  for (uint32_t sample : taken) Put(a, sample);
  for (uint32_t sample : given) Put(b, sample);
  return true;
}

size_t ExchangingBins::Pass(const Direction& direction, double share, const Aim& aim) {
  order_.resize(bins_.size());
  for (uint32_t b = 0; b < bins_.size(); ++b) {
    double key = 0;
    for (int p = 0; p < problem_.num_phases; ++p) key -= direction[p] * to_share_[p] * bins_[b].load[p];
    order_[b] = KeyedByLoad(key, b);
  }
  SortByLoad(order_);
  const size_t half = bins_.size() / 2;
  return Meet(std::min(half, static_cast<size_t>(share * static_cast<double>(bins_.size())) + 1), aim);
}

size_t ExchangingBins::Meet(size_t pairs, const Aim& aim) {
  size_t exchanged = 0;
  for (size_t i = 0; i < pairs; ++i) {
    Bin &a = bins_[NumberOf(order_[i])], &b = bins_[NumberOf(order_[order_.size() - 1 - i])];
    // Most pairs may be below their levels already, whatever samples they have.
    if (GapOf(a, {}, b, {}, aim).IsWorthAnExchange(aim)) exchanged += Exchange(a, b, aim);
  }
  return exchanged;
}

size_t ExchangingBins::PassByRoom(const Aim& aim) {
  order_.resize(bins_.size());
  size_t exceeding = 0;
  for (uint32_t b = 0; b < bins_.size(); ++b) {
    double room = 0, largest = 0;
    for (int p = 0; p < problem_.num_phases; ++p) {
      if (problem_.total[p] == 0) continue;
      const double share = bins_[b].load[p] * (1 / problem_.capacity[p]);
      room += 1 - share, largest = std::max(largest, share);
    }
    exceeding += largest > 1;
    order_[b] = KeyedByLoad(largest > 1 ? -largest : room, b);
  }
  SortByLoad(order_);
  Meet(std::min(exceeding, bins_.size() / 2), aim);
  return exceeding;
}

std::vector<uint32_t> ExchangingBins::TakeExcess() {
  std::vector<uint32_t> taken;
  for (Bin& bin : bins_) {
    for (int p = 0; p < problem_.num_phases; ++p) {
      while (bin.load[p] > problem_.capacity[p]) {
        // The smallest that suffices, else the largest.
        const double excess = bin.load[p] - problem_.capacity[p];
        const auto is_better = [&](uint32_t sample, uint32_t other) {
          const uint32_t length = problem_.lengths[sample][p], of_other = problem_.lengths[other][p];
          const bool suffices = length >= excess, other_suffices = of_other >= excess;
          if (suffices != other_suffices) return suffices;
          return suffices ? length < of_other : length > of_other;
        };
        const auto out = std::min_element(bin.samples.begin(), bin.samples.end(), is_better);
        taken.push_back(*out);
        Subtract(problem_, bin.load, problem_.lengths[*out]);
        bin.samples.erase(out);
      }
    }
  }
  return taken;
}

Bins ExchangingBins::samples() const {
  Bins samples;
  for (const Bin& bin : bins_) samples.push_back(bin.samples);
  return samples;
}

}  // namespace evenkeel::reorder
