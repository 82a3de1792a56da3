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
// agree
//    exactly and leave no choice afterwards, then all of them within the capacities.
// 4. What still exceeds a capacity leaves its bin, and fills others by best fit or opens new ones.
//
// Where samples are so large that only few fit in a bin, dealing cannot do what fitting can: then best-fit
// decreasing packs the bins, if that takes fewer, and they exchange afterwards.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "reorder/pack_exchange.h"
#include "reorder/pack_problem.h"

namespace evenkeel::reorder {
namespace {

// Bins beyond the fewest, where lengths are fine.
constexpr double kSlack = 0.01;

// Bins beyond the fewest at most, so that a coarse phase is even.
constexpr double kMostForEvenness = 0.015;

// A phase is coarse where one unit is this share of a bin's mean load.
constexpr double kCoarse = 0.002;

// At this share more bins than the fewest, packing by best fit is tried too.
constexpr double kWorthFitting = 0.005;

bool IsCoarse(const PackProblem& problem, int phase, double bins) {
  return problem.total[phase] > 0 && problem.unit[phase] * bins > kCoarse * problem.total[phase];
}

// What uneven steps and empty room cost together, with `bins` bins that are as even as their units allow.
double Loss(const PackProblem& problem, double bins) {
  double fill = 0, uneven = 0;
  for (int p = 0; p < kNumPhases; ++p) {
    if (problem.total[p] == 0) continue;
    const double units = problem.total[p] / bins / problem.unit[p];
    fill = std::max(fill, units * problem.unit[p] / problem.capacity[p]);
    if (IsCoarse(problem, p, bins)) uneven += 1 - units / std::ceil(units);
  }
  return 1 - fill + uneven;
}

size_t NumBins(const PackProblem& problem) {
  const double fewest = static_cast<double>(FewestBins(problem));
  double best = std::ceil(fewest), least_loss = Loss(problem, best);
  const auto consider = [&](double bins) {
    bins = std::ceil(bins);
    if (bins < fewest || bins > fewest * (1 + kMostForEvenness) || Loss(problem, bins) >= least_loss) return;
    best = bins, least_loss = Loss(problem, bins);
  };
  for (int p = 0; p < kNumPhases; ++p) {
    if (problem.total[p] == 0) continue;
    if (IsCoarse(problem, p, fewest)) {
      const double units = problem.total[p] / problem.unit[p];
      consider(units / std::floor(units / fewest));
    } else {
      best = std::max(best, std::ceil(problem.total[p] / problem.capacity[p] * (1 + kSlack)));
    }
  }
  return static_cast<size_t>(std::min(best, static_cast<double>(problem.lengths.size())));
}

using Direction = ExchangingBins::Direction;
constexpr Direction kAxes[] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
constexpr Direction kDiagonals[] = {{1, 1, 1}, {1, -1, 0}, {-1, 0, 1}, {0, 1, -1}};

bool IsPresent(const PackProblem& problem, const Direction& direction) {
  for (int p = 0; p < kNumPhases; ++p) {
    if (direction[p] != 0 && direction != kDiagonals[0] && problem.total[p] == 0) return false;
  }
  return true;
}

// Passes in all of these directions; how many pairs exchanged something.
double PassInEach(const PackProblem& problem, std::span<const Direction> directions, double share,
                  const ExchangingBins::Aim& aim, ExchangingBins& exchanging) {
  size_t exchanged = 0;
  for (const Direction& direction : directions) {
    if (IsPresent(problem, direction)) exchanged += exchanging.Pass(direction, share, aim);
  }
  return static_cast<double>(exchanged);
}

// Fewer exchanges than this share of the bins are not worth another round.
constexpr double kWorthARound = 0.001;

// Coarse phases by themselves, whatever the capacities of the others.
void EvenOutCoarsePhases(const PackProblem& problem, double bins, ExchangingBins& exchanging) {
  constexpr int kRounds = 3;
  ExchangingBins::Aim aim{.keep_capacities = false};
  for (int p = 0; p < kNumPhases; ++p) aim.weight[p] = IsCoarse(problem, p, bins) ? 1 : 0.05;
  for (int round = 0; round < kRounds; ++round) {
    aim.pairs = round > 0;
    double exchanged = 0;
    for (int p = 0; p < kNumPhases; ++p) {
      if (IsCoarse(problem, p, bins)) exchanged += exchanging.Pass(kAxes[p], 0.5, aim);
    }
    if (exchanged < kWorthARound * bins) return;
  }
}

// All phases. All bins meet in every direction, the first time to exchange single samples; then the extreme
// ones as long as it helps.
void EvenOut(const PackProblem& problem, double bins, int full_rounds, ExchangingBins& exchanging) {
  constexpr int kRounds = 8;
  constexpr double kExtremes = 0.0625;
  ExchangingBins::Aim aim;
  for (int p = 0; p < kNumPhases; ++p) aim.weight[p] = IsCoarse(problem, p, bins) ? 2 : 1;
  for (int round = 0; round < kRounds; ++round) {
    aim.pairs = round > 0;
    const double share = round < full_rounds ? 0.5 : kExtremes;
    const double exchanged = round % 2 == 0 ? PassInEach(problem, kAxes, share, aim, exchanging)
                                            : PassInEach(problem, kDiagonals, share, aim, exchanging);
    if (round > 0 && exchanged < kWorthARound * bins) return;
  }
}

}  // namespace

Bins PackEvenFill(const PackProblem& problem) {
  if (problem.lengths.empty()) return {};
  const size_t planned = NumBins(problem);
  ExchangingBins dealt(problem, planned);
  dealt.Deal();
  EvenOutCoarsePhases(problem, static_cast<double>(planned), dealt);
  EvenOut(problem, static_cast<double>(planned), 3, dealt);
  std::vector<uint32_t> excess = dealt.TakeExcess();
  Bins bins = dealt.samples();
  if (excess.empty()) return bins;
  // Largest first; their order in LargestShareFirst would cost a sort of all.
  std::sort(excess.begin(), excess.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(problem.lengths[a], a) > std::pair(problem.lengths[b], b);
  });
  AddBestFit(problem, excess, bins);
  if (static_cast<double>(bins.size()) > static_cast<double>(planned) * (1 + kWorthFitting)) {
    Bins fitted = PackBestFitDecreasing(problem);
    if (fitted.size() < bins.size()) bins = std::move(fitted);
  }
  ExchangingBins filled(problem, bins);
  EvenOut(problem, static_cast<double>(bins.size()), 1, filled);
  return filled.samples();
}

}  // namespace evenkeel::reorder
