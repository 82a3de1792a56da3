// Ours, the default: as few bins as the capacities allow, and every bin the same share of every phase.
//
// If all bins have the mean of every phase, every shuffle of them makes even steps, a bin's fill is the mean,
// and no capacity is exceeded; so instead of filling bins one by one, their number is chosen first and the
// samples are dealt over all of them:
//
// 1. The number of bins: the fewest that any packing needs, and a little more where lengths are fine; if a
//    phase has so coarse lengths (images) that a bin more or less shows, such that the mean is just below a
//    whole number of them.
// 2. A deal, largest samples first.
// 3. Exchanges between bins until they are alike: first the coarse phases by themselves, since they must
//    agree exactly and leave no choice afterwards, then all of them, then within the capacities.
// 4. What still exceeds a capacity leaves its bin, and fills others by best fit or opens new ones.
//
// Where that took more bins than planned or left them uneven, two other ways are tried and the best is taken:
// the fewest bins, and bins packed by best-fit decreasing, which exchange afterwards. With one phase the packing
// is no worse than best-fit decreasing in any case. Last, it is compared with OmniBal's (of a part of the samples where they are many and ours is well ahead): it is no
// worse in the number of bins and in the distribution ratio of any phase, or OmniBal's bins, after exchanges
// if these make none of it worse, are taken.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "reorder/pack/pack_exchange.h"
#include "reorder/pack/pack_problem.h"

namespace evenkeel::reorder {
namespace {

// Bins beyond the fewest, where lengths are fine: for every phase, since all have to fit at once.
constexpr double kSlackPerPhase = 0.005;

// Bins are added so that a coarse phase is even while they stay this full; where they cannot be, only if it
// were more uneven than this, and at most this share of the fewest.
constexpr double kFullEnough = 0.975;
constexpr double kEvenEnough = 0.015;
constexpr double kMaxForEvenness = 0.015;

// A phase is coarse where one unit is this share of a bin's mean load.
constexpr double kCoarse = 0.002;

// Other ways are tried where the bins are this share more than planned, or the loads this much more uneven. The number of
// bins is searched to the same precision, in at most kMaxSteps steps.
constexpr double kWorthTrying = 0.005;
constexpr int kMaxSteps = 3;

bool IsPresent(const PackProblem& problem, int phase) { return problem.total[phase] > 0; }

double NumPhases(const PackProblem& problem) {
  double phases = 0;
  for (int p = 0; p < problem.num_phases; ++p) phases += IsPresent(problem, p) ? 1 : 0;
  return phases;
}

bool IsCoarse(const PackProblem& problem, int phase, double bins) {
  return IsPresent(problem, phase) && problem.unit[phase] * bins > kCoarse * problem.total[phase];
}

// Of the fullest phase.
double Fill(const PackProblem& problem, double bins) {
  double fill = 0;
  for (int p = 0; p < problem.num_phases; ++p) {
    if (IsPresent(problem, p)) fill = std::max(fill, problem.total[p] / bins / problem.capacity[p]);
  }
  return fill;
}

// What steps wait for with `bins` bins that are as even as their units allow.
double Unevenness(const PackProblem& problem, double bins) {
  double uneven = 0;
  for (int p = 0; p < problem.num_phases; ++p) {
    if (!IsCoarse(problem, p, bins)) continue;
    const double units = problem.total[p] / bins / problem.unit[p];
    uneven += 1 - units / std::ceil(units);
  }
  return uneven;
}

// With the empty room, what both cost together.
double Loss(const PackProblem& problem, double bins) {
  return 1 - Fill(problem, bins) + Unevenness(problem, bins);
}

size_t NumBins(const PackProblem& problem, double fewest) {
  const double slack = kSlackPerPhase * NumPhases(problem);
  double best = std::ceil(fewest);
  for (int p = 0; p < problem.num_phases; ++p) {
    if (!IsPresent(problem, p) || IsCoarse(problem, p, fewest)) continue;
    best = std::max(best, std::ceil(problem.total[p] / problem.capacity[p] * (1 + slack)));
  }
  const double least = best;
  for (int p = 0; p < problem.num_phases; ++p) {
    if (!IsCoarse(problem, p, fewest)) continue;
    const double units = problem.total[p] / problem.unit[p];
    const double bins = std::ceil(units / std::floor(units / least));
    const bool full = Fill(problem, bins) >= kFullEnough;
    const bool few = bins <= fewest * (1 + kMaxForEvenness) && Fill(problem, fewest) < kFullEnough &&
                     Unevenness(problem, best) > kEvenEnough;
    if (bins >= least && (full || few) && Loss(problem, bins) < Loss(problem, best)) best = bins;
  }
  return static_cast<size_t>(std::min(best, static_cast<double>(problem.lengths.size())));
}

using Direction = ExchangingBins::Direction;
// One phase by itself.
Direction Axis(int phase) {
  Direction axis{};
  axis[phase] = 1;
  return axis;
}

// Every phase that the problem has.
std::vector<Direction> Axes(const PackProblem& problem) {
  std::vector<Direction> axes;
  for (int p = 0; p < problem.num_phases; ++p) {
    if (IsPresent(problem, p)) axes.push_back(Axis(p));
  }
  return axes;
}

// All phases together, then one less another for every two of them. The signs alternate, so that neither end
// of the order always has much of the same phase.
std::vector<Direction> Diagonals(const PackProblem& problem) {
  std::vector<Direction> diagonals = {AllPhases(1)};
  for (int p = 0; p < problem.num_phases; ++p) {
    for (int q = p + 1; q < problem.num_phases; ++q) {
      if (!IsPresent(problem, p) || !IsPresent(problem, q)) continue;
      Direction& difference = diagonals.emplace_back();
      difference[p] = (q - p) % 2 == 1 ? 1 : -1;
      difference[q] = -difference[p];
    }
  }
  return diagonals;
}

// Exchanges for the sake of capacities go on while they leave no more than this share of the bins that exceed
// one.
constexpr double kWorthGoingOn = 0.95;
// They aim at so much of it: what exceeds a level by a thousandth is let be.
constexpr double kWithinCapacity = 0.998;

// Fewer exchanges than this share of the bins are not worth another round.
constexpr double kWorthARound = 0.001;

// Up to which loads, in means, bins of a phase are as even as they can be.
PhaseLoads Levels(const PackProblem& problem, double bins) {
  PhaseLoads level = AllPhases(1);
  for (int p = 0; p < problem.num_phases; ++p) {
    if (!IsCoarse(problem, p, bins)) continue;
    const double units = problem.total[p] / bins / problem.unit[p];
    level[p] = std::ceil(units) / units;
  }
  return level;
}

// Coarse phases by themselves, whatever the capacities of the others.
void EvenOutCoarsePhases(const PackProblem& problem, double bins, ExchangingBins& exchanging) {
  constexpr int kRounds = 3;
  ExchangingBins::Aim aim{.level = Levels(problem, bins), .keep_capacities = false};
  for (int p = 0; p < problem.num_phases; ++p) aim.weight[p] = IsCoarse(problem, p, bins) ? 1 : 0.05;
  for (int round = 0; round < kRounds; ++round) {
    aim.pairs = round > 0;
    double exchanged = 0;
    for (int p = 0; p < problem.num_phases; ++p) {
      if (IsCoarse(problem, p, bins)) exchanged += exchanging.Pass(Axis(p), 0.5, aim);
    }
    if (exchanged < kWorthARound * bins) return;
  }
}

// A round of passes in all axes, or in all diagonals.
struct Round {
  double share;  // of the bins, from either end
  bool axes;
  bool pairs;
  bool keep_capacities;
};
constexpr double kExtremes = 0.0625;
constexpr Round kAfterADeal[] = {
    {0.5, true, false, false},     {0.5, false, false, false},     {0.5, true, false, true},
    {0.5, false, false, true},     {0.5, true, true, true},        {kExtremes, false, true, true},
    {kExtremes, true, true, true}, {kExtremes, false, true, true}, {kExtremes, true, true, true}};
constexpr Round kAfterAFit[] = {{0.5, true, false, true},
                                {0.5, false, false, true},
                                {0.5, true, true, true},
                                {kExtremes, false, true, true},
                                {kExtremes, true, true, true}};
constexpr Round kAfterAdding[] = {
    {0.5, true, false, true}, {kExtremes, false, true, true}, {kExtremes, true, true, true}};

void EvenOut(const PackProblem& problem, double bins, std::span<const Round> rounds,
             ExchangingBins& exchanging) {
  ExchangingBins::Aim aim{.level = Levels(problem, bins)};
  for (int p = 0; p < problem.num_phases; ++p) aim.weight[p] = IsCoarse(problem, p, bins) ? 2 : 1;
  const double phases = NumPhases(problem);
  const std::vector<Direction> axes = Axes(problem), diagonals = Diagonals(problem);
  for (const Round& round : rounds) {
    // With more phases there are more passes in a round, and dearer ones.
    const double share = round.pairs ? std::min(round.share, 1 / phases / phases * 2) : round.share;
    aim.pairs = round.pairs, aim.keep_capacities = round.keep_capacities;
    for (const Direction& direction : round.axes ? axes : diagonals) exchanging.Pass(direction, share, aim);
  }
}

// Samples that all take about the same part of a bin leave little choice of how many it has: such a bin is
// above the mean or a sample below it, and what is above comes near the capacities. So bins that exceed one
// exchange with those that have room until they keep it, however far above the mean that is. Not where
// capacities are far above the mean: bins would come out uneven.
void KeepCapacities(const PackProblem& problem, double bins, ExchangingBins& exchanging) {
  constexpr int kRounds = 16;
  if (Fill(problem, bins) < kFullEnough) return;
  ExchangingBins::Aim aim;
  for (int p = 0; p < problem.num_phases; ++p) {
    if (!IsPresent(problem, p)) continue;
    aim.weight[p] = 1;
    aim.level[p] = kWithinCapacity * problem.capacity[p] * bins / problem.total[p];
  }
  double exceeded = 2 * bins;
  for (int round = 0; round < kRounds; ++round) {
    const double exceeding = static_cast<double>(exchanging.PassByRoom(aim));
    if (exceeding < kWorthARound * bins || exceeding > kWorthGoingOn * exceeded) return;
    exceeded = exceeding;
  }
}

// Deal, exchange, and find a place for the excess.
Bins DealEvenly(const PackProblem& problem, size_t planned) {
  const double bins = static_cast<double>(planned);
  ExchangingBins dealt(problem, planned);
  dealt.Deal();
  EvenOutCoarsePhases(problem, bins, dealt);
  EvenOut(problem, bins, kAfterADeal, dealt);
  KeepCapacities(problem, bins, dealt);
  std::vector<uint32_t> excess = dealt.TakeExcess();
  Bins out = dealt.samples();
  if (excess.empty()) return out;
  // Largest first; their order in LargestShareFirst would cost a sort of all.
  std::sort(excess.begin(), excess.end(), [&](uint32_t a, uint32_t b) {
    const uint32_t *of_a = problem.lengths[a], *of_b = problem.lengths[b];
    for (int p = 0; p < problem.num_phases; ++p) {
      if (of_a[p] != of_b[p]) return of_a[p] > of_b[p];
    }
    return a > b;
  });
  AddBestFit(problem, excess, out);
  ExchangingBins filled(problem, out);
  EvenOut(problem, static_cast<double>(out.size()), kAfterAdding, filled);
  return filled.samples();
}

// Bins that keep the capacities, more alike.
Bins Exchanged(const PackProblem& problem, const Bins& bins) {
  ExchangingBins exchanging(problem, bins);
  EvenOut(problem, static_cast<double>(bins.size()), kAfterAFit, exchanging);
  return exchanging.samples();
}

struct Judged {
  Bins bins;
  std::vector<PackedPhase> measured;  // [num_phases]
  double loss = 0;  // empty room in the fullest phase, and what steps wait for beyond what they must

  Judged(const PackProblem& problem, Bins judged) : bins(std::move(judged)) {
    std::erase_if(bins, [](const std::vector<uint32_t>& bin) { return bin.empty(); });
    measured = MeasureBins(problem, bins);
    loss = 1 - Fill(problem, static_cast<double>(bins.size()));
    for (const PackedPhase& phase : measured) {
      loss += std::max(0.0, phase.distribution_ratio - phase.distribution_ratio_floor);
    }
  }
  // No worse in bins and any ratio, by `margin`.
  bool Beats(const Judged& other, double margin) const {
    if (static_cast<double>(bins.size()) > static_cast<double>(other.bins.size()) * (1 - margin))
      return false;
    for (size_t p = 0; p < measured.size(); ++p) {
      if (measured[p].distribution_ratio > std::max(0.0, other.measured[p].distribution_ratio - margin)) {
        return false;
      }
    }
    return true;
  }
};

bool IsUnevenWhereCoarse(const PackProblem& problem, const Judged& judged) {
  const double bins = static_cast<double>(judged.bins.size());
  const PhaseLoads level = Levels(problem, bins);
  for (int p = 0; p < problem.num_phases; ++p) {
    const double reachable = std::max(1 - 1 / level[p], judged.measured[p].distribution_ratio_floor);
    if (IsCoarse(problem, p, bins) && judged.measured[p].distribution_ratio > reachable + kWorthTrying) {
      return true;
    }
  }
  return false;
}

// Every `every`-th sample in the order of their sizes, as a problem of its own. Not a random part: where capacities are
// tight, means that are off by a thousandth make another problem.
PackProblem PartOf(const PackProblem& problem, size_t every) {
  std::vector<uint64_t> by_size(problem.lengths.size());
  for (uint32_t s = 0; s < by_size.size(); ++s) {
    double size = 0;
    for (int p = 0; p < problem.num_phases; ++p) {
      if (problem.total[p] > 0) size += problem.lengths[s][p] / problem.total[p];
    }
    by_size[s] = Keyed(OrderedBits(static_cast<float>(size)), s);
  }
  std::sort(by_size.begin(), by_size.end());
  PackProblem part = problem;
  part.lengths = LengthTable(problem.num_phases);
  part.total = {};
  for (size_t i = every / 2; i < by_size.size(); i += every) {
    const uint32_t* const lengths = problem.lengths[NumberOf(by_size[i])];
    part.lengths.push_back(lengths);
    Add(problem, part.total, lengths);
  }
  return part;
}

// How a packing came to be: a deal to the number of bins that was planned, or to another one, or best fit.
struct Way {
  bool is_planned = true;
  double over_fewest = 0;  // the number of bins; 0: best fit
};

Judged FindWay(const PackProblem& problem, Way& way) {
  const double fewest = static_cast<double>(FewestBins(problem));
  const size_t planned = NumBins(problem, fewest);
  Judged best(problem, DealEvenly(problem, planned));
  const auto consider = [&](Bins bins, double over_fewest) {
    Judged other(problem, std::move(bins));
    const size_t count = other.bins.size();
    if (other.loss < best.loss) {
      best = std::move(other);
      way = {.is_planned = false, .over_fewest = over_fewest};
    }
    return count;
  };
  const auto deal = [&](size_t bins) {
    return consider(DealEvenly(problem, bins), static_cast<double>(bins) / fewest);
  };
  const double worth_it = kWorthTrying * static_cast<double>(planned);
  if (static_cast<double>(best.bins.size() - planned) <= worth_it && !IsUnevenWhereCoarse(problem, best)) {
    return best;
  }
  // The least number that leaves no excess is between what was planned and what it came to.
  size_t low = planned, high = best.bins.size();
  for (int step = 0; step < kMaxSteps && worth_it < static_cast<double>(high - low); ++step) {
    const size_t middle = low + (high - low) / 2;
    (deal(middle) > middle ? low : high) = middle;
  }
  if (static_cast<double>(planned) > fewest) deal(static_cast<size_t>(fewest));
  consider(Exchanged(problem, PackBestFitDecreasing(problem)), 0);
  return best;
}

// The same way as a part of the samples was packed best.
Bins PackLikeAPart(const PackProblem& problem, const PackProblem& part) {
  Way way;
  FindWay(part, way);
  const double fewest = static_cast<double>(FewestBins(problem));
  if (way.is_planned) return DealEvenly(problem, NumBins(problem, fewest));
  if (way.over_fewest == 0) return Exchanged(problem, PackBestFitDecreasing(problem));
  return DealEvenly(problem, static_cast<size_t>(std::ceil(fewest * way.over_fewest)));
}

// More samples than these are looked at by a part of about as many.
constexpr size_t kMany = 60000;

// Whether OmniBal's packing of every `every`-th sample is far worse than `ours` of all. Except for
// chance, figures of a part equal those of all samples; only the number of bins differs.
bool IsWellAheadOfOmnibal(const PackProblem& part, size_t every, const Judged& ours) {
  constexpr double kWellAhead = 0.01;
  Judged theirs(part, PackOmnibal(part));
  theirs.bins.resize(theirs.bins.size() * every);
  return ours.Beats(theirs, kWellAhead);
}

// `ours`, or what is no worse than `method`'s packing in bins and any ratio where ours is.
Judged NoWorseThan(Bins (*method)(const PackProblem&), const PackProblem& problem, Judged ours) {
  if (ours.bins.size() < problem.devices) return ours;  // no full step to compare
  Judged theirs(problem, method(problem));
  if (ours.Beats(theirs, 0)) return ours;
  Judged improved(problem, Exchanged(problem, theirs.bins));
  return improved.Beats(theirs, 0) ? improved : theirs;
}

// With one phase nothing is gained by leaving room in every bin: samples are cut at the capacity, so the fullest bin of a
// step is full. There best fit decreasing is hard to beat.
Bins NoWorseThanOthers(const PackProblem& problem, Judged ours, bool than_omnibal) {
  if (problem.num_phases == 1) ours = NoWorseThan(PackBestFitDecreasing, problem, std::move(ours));
  if (than_omnibal) ours = NoWorseThan(PackOmnibal, problem, std::move(ours));
  return std::move(ours.bins);
}

}  // namespace

Bins PackEvenFill(const PackProblem& problem) {
  if (problem.lengths.empty()) return {};
  const size_t every = problem.lengths.size() / kMany;
  if (every <= 1) {
    Way way;
    return NoWorseThanOthers(problem, FindWay(problem, way), true);
  }
  const PackProblem part = PartOf(problem, every);
  Judged ours(problem, PackLikeAPart(problem, part));
  const bool than_omnibal = !IsWellAheadOfOmnibal(part, every, ours);
  return NoWorseThanOthers(problem, std::move(ours), than_omnibal);
}

Bins PackEvenFillInMultiples(const PackProblem& problem, size_t multiple) {
  const auto rounded_up = [&](size_t bins) {
    return std::min((bins + multiple - 1) / multiple * multiple, problem.lengths.size());
  };
  // Where no smaller multiple can do, a deal to that many bins is often all that it takes.
  const uint64_t fewest = FewestBins(problem);
  const size_t planned = rounded_up(NumBins(problem, static_cast<double>(fewest)));
  Judged dealt(problem, DealEvenly(problem, planned));
  const bool is_planned = dealt.bins.size() == planned && planned < fewest + multiple;
  if (is_planned && !IsUnevenWhereCoarse(problem, dealt)) return std::move(dealt.bins);
  Bins bins = PackEvenFill(problem);
  const size_t count = rounded_up(bins.size());
  if (count == bins.size()) return bins;
  SplitInto(problem, count, bins);
  Judged split(problem, Exchanged(problem, bins));
  if (count != planned) dealt = Judged(problem, DealEvenly(problem, count));
  return dealt.bins.size() == count && dealt.loss < split.loss ? std::move(dealt.bins)
                                                               : std::move(split.bins);
}

}  // namespace evenkeel::reorder
