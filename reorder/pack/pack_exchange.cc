// Sorts bins, lets them meet in pairs, and finds for a pair the bundles whose exchange leaves least above the
// levels.
#include "reorder/pack/pack_exchange.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace evenkeel::reorder {
namespace {

// A round deals to this part of the bins.
constexpr size_t kRoundsPerBins = 4;

// Bins that differ by less than this share of the mean, weighted, are alike; and an exchange must bring them
// nearer by more than a rounding.
constexpr float kAlike = 0.001f;
constexpr float kNearer = 0.999f;

// Room for so many more samples than the mean is made in a bin from the start.
constexpr size_t kMoreThanMean = 4;

// What two bins may offer each other.
constexpr int kMaxBundles = 48;

// What a load off the middle counts where it is above no level.
constexpr float kSoft = 0.002f;

// Of one phase, where one bin has `off` more than the mean of the two and the other as much less: what is
// beyond `half` from `middle` exceeds a level.
float Loss(float off, float middle, float half) {
  const float beyond = std::max(0.0f, std::abs(off - middle) - half);
  return beyond * beyond + kSoft * (off * off);
}

// In each phase that the problem has, what one of two bins should give the other, and the two other arguments
// of Loss.
struct Wish {
  std::array<float, kMaxPhases> left, middle, half;  // set for as many as there are
};

// Shares of bundles, in columns: one per phase that the problem has.
using Columns = float[kMaxPhases][kMaxBundles];

// The losses of an exchange, summed over the phases, of every bundle that is given for every one that is
// taken; and the least of each that is given.
struct Losses {
  float loss[kMaxBundles][kMaxBundles];
  float least[kMaxBundles];
};

// Returns the least of all. The inner loops are over the bundles that are taken, so that the compiler makes
// vectors of them.
float FillLosses(const Wish& wish, int phases, const Columns& given, int gives, const Columns& taken,
                 int takes, Losses& losses) {
  float least_of_all = std::numeric_limits<float>::max();
  for (int i = 0; i < gives; ++i) {
    float* const loss = losses.loss[i];
    std::fill_n(loss, takes, 0.0f);
    for (int c = 0; c < phases; ++c) {
      const float left = wish.left[c] - given[c][i], middle = wish.middle[c], half = wish.half[c];
      for (int j = 0; j < takes; ++j) loss[j] += Loss(left + taken[c][j], middle, half);
    }
    // Losses are not negative, and so order as the integers of their bits.
    int32_t least = std::numeric_limits<int32_t>::max();
    for (int j = 0; j < takes; ++j) least = std::min(least, std::bit_cast<int32_t>(loss[j]));
    losses.least[i] = std::bit_cast<float>(least);
    least_of_all = std::min(least_of_all, losses.least[i]);
  }
  return least_of_all;
}

constexpr uint32_t kNone = 0xffffffffu;

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

// Up to two samples that a bin could give away, as shares: in columns, so that one loop compares a bundle
// with many. The first is the empty bundle. A bin with many samples offers the first ones.
struct ExchangingBins::Bundles {
  Columns share;  // of the phases that the problem has
  uint32_t slot[kMaxBundles][2];
  int size = 0;
};

// What should go from one bin to the other, between which loads neither is above its level, and what the two
// lose as they are: in all, and by what exceeds a level alone.
struct ExchangingBins::Gap {
  Wish wish;
  float loss = 0, above = 0;

  // Pairs cost more, and are for those that exceed a level.
  bool IsWorthAnExchange(const Aim& aim) const { return (aim.pairs ? above : loss) >= kAlike * kAlike; }
};

ExchangingBins::ExchangingBins(const PackProblem& problem, size_t num_bins) : problem_(problem) {
  bins_.resize(num_bins);
  for (int p = 0; p < problem.num_phases; ++p) {
    if (problem.total[p] == 0) continue;
    to_share_[p] = static_cast<double>(num_bins) / problem.total[p];
    present_[num_present_++] = p;
  }
  const size_t expected = num_bins > 0 ? problem.lengths.size() / num_bins + kMoreThanMean : 0;
  slot_words_ = 1 + static_cast<size_t>(problem.num_phases);
  slots_.resize(num_bins * expected * slot_words_);
  for (size_t b = 0; b < num_bins; ++b) {
    bins_[b].begin = b * expected, bins_[b].room = static_cast<uint32_t>(expected);
  }
}

ExchangingBins::ExchangingBins(const PackProblem& problem, const Bins& bins)
    : ExchangingBins(problem, bins.size()) {
  for (size_t b = 0; b < bins.size(); ++b) {
    for (uint32_t sample : bins[b]) Put(bins_[b], sample, problem.lengths[sample]);
  }
}

void ExchangingBins::Put(Bin& bin, uint32_t sample, const uint32_t* length) {
  if (bin.size == bin.room) {
    // After all others, with room for twice as many.
    const size_t begin = slots_.size() / slot_words_;
    slots_.resize(slots_.size() + 2 * bin.room * slot_words_);
    std::copy_n(AtSlot(bin, 0), bin.size * slot_words_, slots_.data() + begin * slot_words_);
    bin.begin = begin, bin.room *= 2;
  }
  uint32_t* const slot = AtSlot(bin, bin.size++);
  slot[0] = sample;
  std::copy_n(length, problem_.num_phases, slot + 1);
  Add(problem_, bin.load, length);
}

void ExchangingBins::Remove(Bin& bin, uint32_t slot, Filled filled) {
  uint32_t *const out = AtSlot(bin, slot), *const end = AtSlot(bin, bin.size);
  for (int p = 0; p < problem_.num_phases; ++p) bin.load[p] -= out[1 + p];
  if (filled == Filled::kByTheNext) {
    std::copy(out + slot_words_, end, out);
  } else {
    std::copy_n(end - slot_words_, slot_words_, out);
  }
  --bin.size;
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
      Put(bins_[NumberOf(takers[i])], NumberOf(samples[i]), problem_.lengths[NumberOf(samples[i])]);
    }
  }
}

void ExchangingBins::Gather(const Bin& bin, const Aim& aim, Bundles& bundles) const {
  std::array<float, kMaxPhases> scale{};
  for (int c = 0; c < num_present_; ++c) {
    bundles.share[c][0] = 0;
    scale[c] = static_cast<float>(aim.weight[present_[c]] * to_share_[present_[c]]);
  }
  bundles.slot[0][0] = bundles.slot[0][1] = kNone;
  const int singles = static_cast<int>(std::min<size_t>(bin.size, kMaxBundles - 1));
  for (int i = 1; i <= singles; ++i) {
    const uint32_t slot = static_cast<uint32_t>(i - 1);
    const uint32_t* const length = SlotOf(bin, slot).length();
    for (int c = 0; c < num_present_; ++c) {
      bundles.share[c][i] = scale[c] * static_cast<float>(length[present_[c]]);
    }
    bundles.slot[i][0] = slot;
    bundles.slot[i][1] = kNone;
  }
  bundles.size = singles + 1;
  for (int i = 1; aim.pairs && i <= singles; ++i) {
    for (int j = i + 1; j <= singles && bundles.size < kMaxBundles; ++j) {
      const int pair = bundles.size++;
      for (int c = 0; c < num_present_; ++c) {
        bundles.share[c][pair] = bundles.share[c][i] + bundles.share[c][j];
      }
      bundles.slot[pair][0] = static_cast<uint32_t>(i - 1);
      bundles.slot[pair][1] = static_cast<uint32_t>(j - 1);
    }
  }
}

bool ExchangingBins::Keeps(const Bin& bin, const PhaseLoads& added) const {
  for (int p = 0; p < problem_.num_phases; ++p) {
    if (added[p] > 0 && bin.load[p] + added[p] > problem_.capacity[p]) return false;
  }
  return true;
}

PhaseLengths ExchangingBins::LongestOf(const Bin& bin) const {
  PhaseLengths longest{};
  for (size_t i = 0; i < bin.size; ++i) {
    const uint32_t* const length = SlotOf(bin, i).length();
    for (int p = 0; p < problem_.num_phases; ++p) longest[p] = std::max(longest[p], length[p]);
  }
  return longest;
}

ExchangingBins::Gap ExchangingBins::GapOf(const Bin& a, const PhaseLengths& longest_a, const Bin& b,
                                          const PhaseLengths& longest_b, const Aim& aim) const {
  Gap gap;
  for (int c = 0; c < num_present_; ++c) {
    const int p = present_[c];
    const double mean = (a.load[p] + b.load[p]) / 2 * to_share_[p];
    const auto room = [&](uint32_t longest) {
      return aim.weight[p] * (std::max(aim.level[p], longest * to_share_[p]) - mean);
    };
    const double room_a = room(longest_a[p]), room_b = room(longest_b[p]);
    const float wanted = static_cast<float>(aim.weight[p] * to_share_[p] * (a.load[p] - b.load[p]) / 2);
    gap.wish.left[c] = wanted;
    gap.wish.middle[c] = static_cast<float>((room_a - room_b) / 2);
    gap.wish.half[c] = static_cast<float>((room_a + room_b) / 2);
    const float loss = Loss(wanted, gap.wish.middle[c], gap.wish.half[c]);
    gap.loss += loss;
    gap.above += loss - kSoft * (wanted * wanted);
  }
  return gap;
}

bool ExchangingBins::Exchange(Bin& a, Bin& b, const Aim& aim) {
  const Gap gap = GapOf(a, LongestOf(a), b, LongestOf(b), aim);
  if (!gap.IsWorthAnExchange(aim)) return false;
  Bundles from_a, from_b;
  Gather(a, aim, from_a);
  Gather(b, aim, from_b);
  Losses losses;
  const float least =
      FillLosses(gap.wish, num_present_, from_a.share, from_a.size, from_b.share, from_b.size, losses);
  float best = gap.loss * kNearer;
  if (least >= best) return false;
  const auto keeps_capacities = [&](int i, int j) {
    PhaseLoads added, removed;  // set for as many phases as there are
    std::fill_n(added.begin(), problem_.num_phases, 0.0);
    for (int k = 0; k < 2; ++k) {
      const uint32_t given = from_a.slot[i][k], taken = from_b.slot[j][k];
      for (int p = 0; p < problem_.num_phases; ++p) {
        if (given != kNone) added[p] += SlotOf(a, given).length()[p];
        if (taken != kNone) added[p] -= SlotOf(b, taken).length()[p];
      }
    }
    for (int p = 0; p < problem_.num_phases; ++p) removed[p] = -added[p];
    return Keeps(b, added) && Keeps(a, removed);
  };
  int give = -1, take = -1;
  for (int i = 0; i < from_a.size; ++i) {
    // Where anything may be exchanged, what has the least loss of all is.
    if (losses.least[i] >= best || (!aim.keep_capacities && losses.least[i] > least)) continue;
    for (int j = 0; j < from_b.size; ++j) {
      if (losses.loss[i][j] >= best || (aim.keep_capacities && !keeps_capacities(i, j))) continue;
      best = losses.loss[i][j], give = i, take = j;
    }
  }
  if (give < 0) return false;
  struct Taken {
    uint32_t sample[2];
    int count = 0;
  };
  // The later slot first, so that the earlier one stays where it is.
  const auto remove = [&](Bin& bin, const uint32_t* numbers) {
    Taken out;
    for (int k = 1; k >= 0; --k) {
      if (numbers[k] == kNone) continue;
      out.sample[out.count++] = SlotOf(bin, numbers[k]).sample();
      Remove(bin, numbers[k], Filled::kByTheLast);
    }
    return out;
  };
  const Taken given = remove(a, from_a.slot[give]), taken = remove(b, from_b.slot[take]);
  for (int k = 0; k < taken.count; ++k) Put(a, taken.sample[k], problem_.lengths[taken.sample[k]]);
  for (int k = 0; k < given.count; ++k) Put(b, given.sample[k], problem_.lengths[given.sample[k]]);
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
  // Most pairs may be below their levels already, whatever samples they have.
  std::vector<std::pair<uint32_t, uint32_t>> meeting;
  for (size_t i = 0; i < pairs; ++i) {
    const uint32_t a = NumberOf(order_[i]), b = NumberOf(order_[order_.size() - 1 - i]);
    if (GapOf(bins_[a], {}, bins_[b], {}, aim).IsWorthAnExchange(aim)) meeting.emplace_back(a, b);
  }
  size_t exchanged = 0;
  for (const auto& [a, b] : meeting) exchanged += Exchange(bins_[a], bins_[b], aim);
  return exchanged;
}

size_t ExchangingBins::PassByRoom(const Aim& aim) {
  PhaseLoads to_capacity{};
  for (int c = 0; c < num_present_; ++c) to_capacity[present_[c]] = 1 / problem_.capacity[present_[c]];
  order_.resize(bins_.size());
  size_t exceeding = 0;
  for (uint32_t b = 0; b < bins_.size(); ++b) {
    const double largest = LargestShare(problem_.num_phases, bins_[b].load, to_capacity);
    double room = 0;
    for (int c = 0; c < num_present_; ++c) {
      room += 1 - bins_[b].load[present_[c]] * to_capacity[present_[c]];
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
        const auto is_better = [&](uint32_t a, uint32_t b) {
          const bool suffices_a = a >= excess, suffices_b = b >= excess;
          if (suffices_a != suffices_b) return suffices_a;
          return suffices_a ? a < b : a > b;
        };
        uint32_t out = 0;
        for (uint32_t i = 1; i < bin.size; ++i) {
          if (is_better(SlotOf(bin, i).length()[p], SlotOf(bin, out).length()[p])) out = i;
        }
        taken.push_back(SlotOf(bin, out).sample());
        Remove(bin, out, Filled::kByTheNext);
      }
    }
  }
  return taken;
}

Bins ExchangingBins::samples() const {
  Bins samples(bins_.size());
  for (size_t b = 0; b < bins_.size(); ++b) {
    samples[b].reserve(bins_[b].size);
    for (size_t i = 0; i < bins_[b].size; ++i) samples[b].push_back(SlotOf(bins_[b], i).sample());
  }
  return samples;
}

}  // namespace evenkeel::reorder
