#include "reorder/pack_exchange.h"

#include <algorithm>
#include <utility>

namespace evenkeel::reorder {
namespace {

// A round deals to this part of the bins.
constexpr size_t kRoundsPerBins = 4;

// Bins that differ by less than this share of the mean, weighted, are alike; and an exchange must bring them
// nearer by more than a rounding.
constexpr float kAlike = 0.001f;
constexpr float kNearer = 0.999f;

constexpr uint32_t kNone = 0xffffffffu;

using Keyed = std::pair<double, uint32_t>;

double LargestShare(const PhaseLoads& load, const PhaseLoads& to_share) {
  double share = 0;
  for (int p = 0; p < kNumPhases; ++p) share = std::max(share, load[p] * to_share[p]);
  return share;
}

}  // namespace

// Up to two samples that a bin could give away, as shares: in columns, so that one loop compares a bundle
// with many. The first is the empty bundle. A bin with many samples offers the first ones.
struct ExchangingBins::Bundles {
  static constexpr int kMost = 64;
  float share[kNumPhases][kMost];
  uint32_t slot[kMost][2];
  int size = 0;
};

ExchangingBins::ExchangingBins(const PackProblem& problem, size_t num_bins)
    : problem_(problem), bins_(num_bins) {
  for (int p = 0; p < kNumPhases; ++p) {
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
  bin.slots.push_back({problem_.lengths[sample], sample});
  Add(bin.load, problem_.lengths[sample]);
}

void ExchangingBins::Deal() {
  PhaseLoads mean{};
  for (int p = 0; p < kNumPhases; ++p) mean[p] = to_share_[p] > 0 ? 1 / to_share_[p] : 0;
  const std::vector<uint32_t> order = LargestShareFirst(problem_, mean);
  const size_t round = std::max<size_t>(1, bins_.size() / kRoundsPerBins);
  std::vector<Keyed> takers(bins_.size()), samples;
  int phase = 0;
  for (size_t dealt = 0; dealt < order.size(); dealt += samples.size()) {
    samples.resize(std::min(round, order.size() - dealt));
    for (uint32_t b = 0; b < bins_.size(); ++b) takers[b] = {LargestShare(bins_[b].load, to_share_), b};
    const auto last_taker = takers.begin() + static_cast<ptrdiff_t>(samples.size());
    if (last_taker != takers.end()) std::nth_element(takers.begin(), last_taker, takers.end());
    // Much of this phase and little of the next goes to the bin that has it the other way round.
    const int first = phase, second = (phase + 1) % kNumPhases;
    phase = second;
    for (size_t i = 0; i < samples.size(); ++i) {
      const PhaseLoads& load = bins_[takers[i].second].load;
      takers[i].first = to_share_[first] * load[first] - to_share_[second] * load[second];
      const uint32_t sample = order[dealt + i];
      const PhaseLengths& length = problem_.lengths[sample];
      samples[i] = {to_share_[second] * length[second] - to_share_[first] * length[first], sample};
    }
    std::sort(takers.begin(), last_taker);
    std::sort(samples.begin(), samples.end());
    for (size_t i = 0; i < samples.size(); ++i) Put(bins_[takers[i].second], samples[i].second);
  }
}

void ExchangingBins::Gather(const Bin& bin, const std::array<float, kNumPhases>& scale, bool pairs,
                            Bundles& bundles) const {
  for (auto& column : bundles.share) column[0] = 0;
  bundles.slot[0][0] = bundles.slot[0][1] = kNone;
  const int singles = static_cast<int>(std::min<size_t>(bin.slots.size(), Bundles::kMost - 1));
  for (int i = 1; i <= singles; ++i) {
    const uint32_t slot = static_cast<uint32_t>(i - 1);
    for (int p = 0; p < kNumPhases; ++p) {
      bundles.share[p][i] = scale[p] * static_cast<float>(bin.slots[slot].length[p]);
    }
    bundles.slot[i][0] = slot;
    bundles.slot[i][1] = kNone;
  }
  bundles.size = singles + 1;
  if (!pairs) return;
  for (int i = 1; i <= singles; ++i) {
    for (int j = i + 1; j <= singles && bundles.size < Bundles::kMost; ++j) {
      const int pair = bundles.size++;
      for (auto& column : bundles.share) column[pair] = column[i] + column[j];
      bundles.slot[pair][0] = bundles.slot[i][0];
      bundles.slot[pair][1] = bundles.slot[j][0];
    }
  }
}

bool ExchangingBins::Keeps(const Bin& bin, const PhaseLoads& added) const {
  for (int p = 0; p < kNumPhases; ++p) {
    if (added[p] > 0 && bin.load[p] + added[p] > problem_.capacity[p]) return false;
  }
  return true;
}

bool ExchangingBins::Exchange(Bin& a, Bin& b, const Aim& aim) {
  std::array<float, kNumPhases> scale, wanted;  // what should go from a to b
  float best = 0;
  for (int p = 0; p < kNumPhases; ++p) {
    const double to_share = aim.weight[p] * to_share_[p];
    scale[p] = static_cast<float>(to_share);
    wanted[p] = static_cast<float>(to_share * (a.load[p] - b.load[p]) / 2);
    best += wanted[p] * wanted[p];
  }
  if (best < kAlike * kAlike) return false;
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
  float distance[Bundles::kMost];
  for (int i = 0; i < from_a.size; ++i) {
    std::array<float, kNumPhases> left;
    for (int p = 0; p < kNumPhases; ++p) left[p] = from_a.share[p][i] - wanted[p];
    for (int j = 0; j < from_b.size; ++j) {
      const float x = left[0] - from_b.share[0][j], y = left[1] - from_b.share[1][j],
                  z = left[2] - from_b.share[2][j];
      distance[j] = x * x + y * y + z * z;
    }
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
  // The later slot first, so that the earlier one stays where it is.
  const auto remove = [](Bin& bin, const uint32_t* slots, std::vector<Slot>& out) {
    for (int k = 1; k >= 0; --k) {
      if (slots[k] == kNone) continue;
      out.push_back(bin.slots[slots[k]]);
      for (int p = 0; p < kNumPhases; ++p) bin.load[p] -= bin.slots[slots[k]].length[p];
      bin.slots[slots[k]] = bin.slots.back();
      bin.slots.pop_back();
    }
  };
  std::vector<Slot> given, taken;
  remove(a, from_a.slot[give], given);
  remove(b, from_b.slot[take], taken);
  for (const Slot& slot : taken) Put(a, slot.sample);
  for (const Slot& slot : given) Put(b, slot.sample);
  return true;
}

size_t ExchangingBins::Pass(const Direction& direction, double share, const Aim& aim) {
  std::vector<Keyed> order(bins_.size());
  for (uint32_t b = 0; b < bins_.size(); ++b) {
    double key = 0;
    for (int p = 0; p < kNumPhases; ++p) key -= direction[p] * to_share_[p] * bins_[b].load[p];
    order[b] = {key, b};
  }
  const size_t half = bins_.size() / 2;
  const size_t pairs = std::min(half, static_cast<size_t>(share * static_cast<double>(bins_.size())) + 1);
  const auto head = order.begin() + static_cast<ptrdiff_t>(pairs);
  const auto tail = order.end() - static_cast<ptrdiff_t>(pairs);
  if (pairs < half) {
    std::nth_element(order.begin(), head, order.end());
    std::nth_element(head, tail, order.end());
  }
  std::sort(order.begin(), head);
  std::sort(tail, order.end());
  size_t exchanged = 0;
  for (size_t i = 0; i < pairs; ++i) {
    exchanged += Exchange(bins_[order[i].second], bins_[order[order.size() - 1 - i].second], aim);
  }
  return exchanged;
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
