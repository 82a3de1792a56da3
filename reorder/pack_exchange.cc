#include "reorder/pack_exchange.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "reorder/radix_sort.h"

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

// What a load off the middle counts where it is above no level.
constexpr float kSoft = 0.002f;

// Of one phase, where one bin has `off` more than the mean of the two and the other as much less: what is
// beyond `half` from `middle` exceeds a level.
EVENKEEL_INLINE float Loss(float off, float middle, float half) {
  const float out = std::abs(off - middle) - half;
  const float twice = out + std::abs(out);  // 2 max(0, out)
  return 0.25f * (twice * twice) + kSoft * (off * off);
}

// What is left to give in each phase that the problem has, and the two other arguments of Loss.
template <int kPresent>
struct Wish {
  std::array<float, kPresent> left, middle, half;
};

// The losses, summed over the phases, if one of `size` bundles is taken: their shares are in columns, one per
// phase, `stride` apart. Returns the least. The same operations on every lane, however many there are.
template <int kLanes, int kPresent>
EVENKEEL_INLINE float LossOfEach(const Wish<kPresent>& wish, const float* share, int stride, int size,
                                 float* loss) {
  using Floats = typename Lanes<kLanes>::Floats;
  using Ints = typename Lanes<kLanes>::Ints;
  constexpr int32_t kNoSign = 0x7fffffff;
  // Losses are not negative, so their bits are ordered as they are.
  Ints least = Ints{} + std::numeric_limits<int32_t>::max();
  for (int j = 0; j < size; j += kLanes) {
    Floats sum{};
    for (int c = 0; c < kPresent; ++c) {
      const Floats off = wish.left[c] + *reinterpret_cast<const Floats*>(share + c * stride + j);
      Floats out = off - wish.middle[c];
      out = reinterpret_cast<Floats>(reinterpret_cast<Ints>(out) & kNoSign) - wish.half[c];
      const Floats twice = out + reinterpret_cast<Floats>(reinterpret_cast<Ints>(out) & kNoSign);
      sum += 0.25f * (twice * twice) + kSoft * (off * off);
    }
    *reinterpret_cast<Floats*>(loss + j) = sum;
    const Ints bits = reinterpret_cast<Ints>(sum);
    KeepLeast(least, bits);
  }
  SpreadLeast(least);
  return std::bit_cast<float>(static_cast<int32_t>(least[0]));
}

template <int kPresent>
float LossOfEachByFour(const Wish<kPresent>& wish, const float* share, int stride, int size, float* loss) {
  return LossOfEach<4, kPresent>(wish, share, stride, size, loss);
}
template <int kPresent>
EVENKEEL_AVX2 float LossOfEachByEight(const Wish<kPresent>& wish, const float* share, int stride, int size,
                                      float* loss) {
  return LossOfEach<8, kPresent>(wish, share, stride, size, loss);
}
template <int kPresent>
EVENKEEL_AVX512 float LossOfEachBySixteen(const Wish<kPresent>& wish, const float* share, int stride,
                                          int size, float* loss) {
  return LossOfEach<16, kPresent>(wish, share, stride, size, loss);
}

constexpr uint32_t kNone = 0xffffffffu;

double LargestShare(const PhaseLoads& load, const PhaseLoads& to_share) {
  double share = 0;
  for (int p = 0; p < kNumPhases; ++p) share = std::max(share, load[p] * to_share[p]);
  return share;
}

// By key. Of many entries its upper bits suffice: a ten-thousandth of a load decides nothing.
void SortKeyed(std::vector<uint64_t>& keyed, std::vector<uint64_t>& spare) {
  constexpr size_t kFew = 512;
  constexpr int kLowestBit = 42;
  if (keyed.size() < kFew) {
    std::sort(keyed.begin(), keyed.end());
  } else {
    RadixSort(keyed, spare, kLowestBit, 64);
  }
}

uint64_t KeyedByLoad(double load, uint32_t number) {
  return Keyed(OrderedBits(static_cast<float>(load)), number);
}

}  // namespace

// Up to two samples that a bin could give away, as shares: in columns, so that one loop compares a bundle
// with many. The first is the empty bundle. A bin with many samples offers the first ones.
struct ExchangingBins::Bundles {
  static constexpr int kMost = 48;
  static constexpr int kGroup = 16;            // compared at once
  static constexpr float kFar = 1e15f;         // a share that no bundle has
  alignas(64) float share[kNumPhases][kMost];  // [phases that the problem has][bundles]
  uint32_t slot[kMost][2];
  int size = 0;
};

ExchangingBins::ExchangingBins(const PackProblem& problem, size_t num_bins)
    : problem_(problem), bins_(num_bins) {
  for (int p = 0; p < kNumPhases; ++p) {
    if (problem.total[p] == 0) continue;
    to_share_[p] = static_cast<double>(num_bins) / problem.total[p];
    present_[num_present_++] = p;
  }
  const size_t expected = num_bins > 0 ? problem.lengths.size() / num_bins + kMoreThanMean : 0;
  for (Bin& bin : bins_) bin.slots.reserve(expected);
}

ExchangingBins::ExchangingBins(const PackProblem& problem, const Bins& bins)
    : ExchangingBins(problem, bins.size()) {
  for (size_t b = 0; b < bins.size(); ++b) {
    for (uint32_t sample : bins[b]) Put(bins_[b], sample);
  }
}

void ExchangingBins::Put(Bin& bin, uint32_t sample) {
  bin.slots.push_back({problem_.lengths[sample], sample});
  Add(bin.load, problem_.lengths[sample]);
}

void ExchangingBins::Deal() {
  PhaseLoads mean{};
  for (int p = 0; p < kNumPhases; ++p) mean[p] = to_share_[p] > 0 ? 1 / to_share_[p] : 0;
  const std::vector<uint32_t> order = LargestShareFirst(problem_, mean);
  const size_t round = std::max<size_t>(1, bins_.size() / kRoundsPerBins);
  std::vector<uint64_t> all(bins_.size()), takers, samples;
  int phase = 0;
  for (size_t dealt = 0; dealt < order.size(); dealt += samples.size()) {
    const size_t count = std::min(round, order.size() - dealt);
    for (uint32_t b = 0; b < bins_.size(); ++b) {
      all[b] = KeyedByLoad(LargestShare(bins_[b].load, to_share_), b);
    }
    if (count < bins_.size()) SortKeyed(all, spare_);
    // Much of this phase and little of the next goes to the bin that has it the other way round.
    const int first = phase, second = (phase + 1) % kNumPhases;
    phase = second;
    takers.resize(count), samples.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t bin = NumberOf(all[i]), sample = order[dealt + i];
      const PhaseLoads& load = bins_[bin].load;
      const PhaseLengths& length = problem_.lengths[sample];
      const double has = to_share_[first] * load[first] - to_share_[second] * load[second];
      const double brings = to_share_[second] * length[second] - to_share_[first] * length[first];
      takers[i] = KeyedByLoad(has, bin);
      samples[i] = KeyedByLoad(brings, sample);
    }
    SortKeyed(takers, spare_);
    SortKeyed(samples, spare_);
    for (size_t i = 0; i < count; ++i) Put(bins_[NumberOf(takers[i])], NumberOf(samples[i]));
  }
}

void ExchangingBins::Gather(const Bin& bin, const std::array<float, kNumPhases>& scale, bool pairs,
                            Bundles& bundles) const {
  for (int c = 0; c < num_present_; ++c) bundles.share[c][0] = 0;
  bundles.slot[0][0] = bundles.slot[0][1] = kNone;
  const int singles = static_cast<int>(std::min<size_t>(bin.slots.size(), Bundles::kMost - 1));
  for (int i = 1; i <= singles; ++i) {
    const uint32_t slot = static_cast<uint32_t>(i - 1);
    for (int c = 0; c < num_present_; ++c) {
      bundles.share[c][i] = scale[c] * static_cast<float>(bin.slots[slot].length[present_[c]]);
    }
    bundles.slot[i][0] = slot;
    bundles.slot[i][1] = kNone;
  }
  bundles.size = singles + 1;
  for (int i = 1; pairs && i <= singles; ++i) {
    for (int j = i + 1; j <= singles && bundles.size < Bundles::kMost; ++j) {
      const int pair = bundles.size++;
      for (int c = 0; c < num_present_; ++c) {
        bundles.share[c][pair] = bundles.share[c][i] + bundles.share[c][j];
      }
      bundles.slot[pair][0] = static_cast<uint32_t>(i - 1);
      bundles.slot[pair][1] = static_cast<uint32_t>(j - 1);
    }
  }
  // To whole groups, with what is nearest to nothing.
  for (int i = bundles.size; i % Bundles::kGroup != 0; ++i) {
    for (int c = 0; c < num_present_; ++c) bundles.share[c][i] = Bundles::kFar;
  }
}

bool ExchangingBins::Keeps(const Bin& bin, const PhaseLoads& added) const {
  for (int p = 0; p < kNumPhases; ++p) {
    if (added[p] > 0 && bin.load[p] + added[p] > problem_.capacity[p]) return false;
  }
  return true;
}

template <int kPresent>
bool ExchangingBins::Exchange(Bin& a, Bin& b, const Aim& aim) {
  // What should go from a to b, and between which loads neither is above its level; see Loss.
  std::array<float, kNumPhases> scale;
  std::array<float, kPresent> wanted, middle, half;
  float best = 0, above = 0;
  for (int c = 0; c < kPresent; ++c) {
    const int p = present_[c];
    const double to_share = aim.weight[p] * to_share_[p];
    const double mean = (a.load[p] + b.load[p]) / 2 * to_share_[p];
    const auto room = [&](const Bin& bin) {
      uint32_t longest = 0;
      for (const Slot& slot : bin.slots) longest = std::max(longest, slot.length[p]);
      return aim.weight[p] * (std::max(aim.level[p], longest * to_share_[p]) - mean);
    };
    const double room_a = room(a), room_b = room(b);
    scale[c] = static_cast<float>(to_share);
    wanted[c] = static_cast<float>(to_share * (a.load[p] - b.load[p]) / 2);
    middle[c] = static_cast<float>((room_a - room_b) / 2);
    half[c] = static_cast<float>((room_a + room_b) / 2);
    const float loss = Loss(wanted[c], middle[c], half[c]);
    best += loss;
    above += loss - kSoft * (wanted[c] * wanted[c]);
  }
  // Pairs cost more, and are for those that exceed a level.
  if ((aim.pairs ? above : best) < kAlike * kAlike) return false;
  best *= kNearer;
  Bundles from_a, from_b;
  Gather(a, scale, aim.pairs, from_a);
  Gather(b, scale, aim.pairs, from_b);
  const auto added_to_b = [&](int i, int j) {
    PhaseLoads added{};
    for (int k = 0; k < 2; ++k) {
      const uint32_t given = from_a.slot[i][k], taken = from_b.slot[j][k];
      for (int p = 0; p < kNumPhases; ++p) {
        if (given != kNone) added[p] += a.slots[given].length[p];
        if (taken != kNone) added[p] -= b.slots[taken].length[p];
      }
    }
    return added;
  };
  int give = -1, take = -1;
  alignas(64) float distance[Bundles::kMost];
  const auto loss_of_each = width_ == Width::kSixteen ? LossOfEachBySixteen<kPresent>
                            : width_ == Width::kEight ? LossOfEachByEight<kPresent>
                                                      : LossOfEachByFour<kPresent>;
  const int whole = (from_b.size + Bundles::kGroup - 1) / Bundles::kGroup * Bundles::kGroup;
  Wish<kPresent> wish{.left = {}, .middle = middle, .half = half};
  for (int i = 0; i < from_a.size; ++i) {
    for (int c = 0; c < kPresent; ++c) wish.left[c] = wanted[c] - from_a.share[c][i];
    if (loss_of_each(wish, from_b.share[0], Bundles::kMost, whole, distance) >= best) continue;
    for (int j = 0; j < from_b.size; ++j) {
      if (distance[j] >= best) continue;
      if (aim.keep_capacities) {
        const PhaseLoads added = added_to_b(i, j);
        PhaseLoads removed;
        for (int p = 0; p < kNumPhases; ++p) removed[p] = -added[p];
        if (!Keeps(b, added) || !Keeps(a, removed)) continue;
      }
      best = distance[j], give = i, take = j;
    }
  }
  if (give < 0) return false;
  struct Taken {
    Slot slot[2];
    int count = 0;
  };
  // The later slot first, so that the earlier one stays where it is.
  const auto remove = [](Bin& bin, const uint32_t* slots) {
    Taken out;
    for (int k = 1; k >= 0; --k) {
      if (slots[k] == kNone) continue;
      out.slot[out.count++] = bin.slots[slots[k]];
      for (int p = 0; p < kNumPhases; ++p) bin.load[p] -= bin.slots[slots[k]].length[p];
      bin.slots[slots[k]] = bin.slots.back();
      bin.slots.pop_back();
    }
    return out;
  };
  const auto put = [](Bin& bin, const Taken& in) {
    for (int k = 0; k < in.count; ++k) {
      bin.slots.push_back(in.slot[k]);
      Add(bin.load, in.slot[k].length);
    }
  };
  const Taken given = remove(a, from_a.slot[give]), taken = remove(b, from_b.slot[take]);
  put(a, taken);
  put(b, given);
  return true;
}

size_t ExchangingBins::Pass(const Direction& direction, double share, const Aim& aim) {
  order_.resize(bins_.size());
  for (uint32_t b = 0; b < bins_.size(); ++b) {
    double key = 0;
    for (int p = 0; p < kNumPhases; ++p) key -= direction[p] * to_share_[p] * bins_[b].load[p];
    order_[b] = KeyedByLoad(key, b);
  }
  SortKeyed(order_, spare_);
  const size_t half = bins_.size() / 2;
  return Meet(std::min(half, static_cast<size_t>(share * static_cast<double>(bins_.size())) + 1), aim);
}

size_t ExchangingBins::Meet(size_t pairs, const Aim& aim) {
  const auto exchange = num_present_ == 1   ? &ExchangingBins::Exchange<1>
                        : num_present_ == 2 ? &ExchangingBins::Exchange<2>
                                            : &ExchangingBins::Exchange<3>;
  size_t exchanged = 0;
  for (size_t i = 0; i < pairs; ++i) {
    exchanged +=
        (this->*exchange)(bins_[NumberOf(order_[i])], bins_[NumberOf(order_[order_.size() - 1 - i])], aim);
  }
  return exchanged;
}

size_t ExchangingBins::PassByRoom(const Aim& aim) {
  PhaseLoads to_capacity{};
  for (int c = 0; c < num_present_; ++c) to_capacity[present_[c]] = 1 / problem_.capacity[present_[c]];
  order_.resize(bins_.size());
  size_t exceeding = 0;
  for (uint32_t b = 0; b < bins_.size(); ++b) {
    const double largest = LargestShare(bins_[b].load, to_capacity);
    double room = 0;
    for (int c = 0; c < num_present_; ++c) {
      room += 1 - bins_[b].load[present_[c]] * to_capacity[present_[c]];
    }
    exceeding += largest > 1;
    order_[b] = KeyedByLoad(largest > 1 ? -largest : room, b);
  }
  SortKeyed(order_, spare_);
  Meet(std::min(exceeding, bins_.size() / 2), aim);
  return exceeding;
}

std::vector<uint32_t> ExchangingBins::TakeExcess() {
  std::vector<uint32_t> taken;
  for (Bin& bin : bins_) {
    for (int p = 0; p < kNumPhases; ++p) {
      while (bin.load[p] > problem_.capacity[p]) {
        // The smallest that suffices, else the largest.
        const double excess = bin.load[p] - problem_.capacity[p];
        const auto better = [&](const Slot& a, const Slot& b) {
          const bool suffices_a = a.length[p] >= excess, suffices_b = b.length[p] >= excess;
          if (suffices_a != suffices_b) return suffices_a;
          return suffices_a ? a.length[p] < b.length[p] : a.length[p] > b.length[p];
        };
        const auto out = std::min_element(bin.slots.begin(), bin.slots.end(), better);
        for (int q = 0; q < kNumPhases; ++q) bin.load[q] -= out->length[q];
        taken.push_back(out->sample);
        bin.slots.erase(out);
      }
    }
  }
  return taken;
}

Bins ExchangingBins::samples() const {
  Bins samples(bins_.size());
  for (size_t b = 0; b < bins_.size(); ++b) {
    for (const Slot& slot : bins_[b].slots) samples[b].push_back(slot.sample);
  }
  return samples;
}

}  // namespace evenkeel::reorder
