// How few bins could do, so that a planner knows when it is done and a reader why a fill is not reached.
//
// Bounds on the number of bins, two per phase, by its lengths alone; and with the second one what the fullest
// device of a step has at least:
// - Martello and Toth, "Lower bounds and reduction procedures for the bin packing problem" (1990), L2: by the
//   samples of which no two or few share a bin.
// - Gilmore and Gomory, "A linear programming approach to the cutting stock problem" (1961), where lengths
//   are few different numbers of whole units (tiles, images): a weight per length such that no bin that keeps
//   the capacity weighs more than one; the weights of all samples together are a bound. Weights come from the
//   linear programme in doubles; then they are rounded to whole numbers, and what a bin weighs at most is
//   found exactly, so that the bound holds whatever rounding did. Of many different lengths each counts as
//   the shortest of its class: where they come in clusters that takes little from the bound.
// And a third one of two phases together: no bin has more than its whole of the mean of its shares of both
// capacities, with any weights. Such means are lengths of one phase, for which the programme gives a bound.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "reorder/pack/pack_problem.h"

namespace evenkeel::reorder {
namespace {

// L2 of one phase: of the samples longer than capacity - k, none shares a bin with one of at least k; those
// longer than half the capacity share none with each other; the rest of at least k fills what they leave.
// For a k so small that every sample leaves room for it, the bound is the total length over the capacity, so
// only samples longer than the capacity less the longest one need to be sorted.
uint64_t MartelloToth(const std::vector<uint32_t>& all, double capacity) {
  double total = 0;
  uint32_t longest = 0;
  for (uint32_t length : all) total += length, longest = std::max(longest, length);
  std::vector<uint64_t> lengths;
  for (uint32_t length : all) {
    if (length > capacity - longest) lengths.push_back(length);
  }
  std::sort(lengths.begin(), lengths.end());
  std::vector<double> sum(lengths.size() + 1, 0.0);
  for (size_t i = 0; i < lengths.size(); ++i) sum[i + 1] = sum[i] + static_cast<double>(lengths[i]);
  const auto longer_than = [&](double bound) {  // index of the first one
    return static_cast<size_t>(
        std::partition_point(lengths.begin(), lengths.end(),
                             [&](uint64_t l) { return static_cast<double>(l) <= bound; }) -
        lengths.begin());
  };
  const size_t half = longer_than(capacity / 2);
  double best = std::max(static_cast<double>(lengths.size() - half), std::ceil(total / capacity));
  for (size_t i = 0; i < half; ++i) {
    if (lengths[i] == 0 || (i > 0 && lengths[i] == lengths[i - 1])) continue;
    const size_t alone = longer_than(capacity - static_cast<double>(lengths[i]));
    const double left = static_cast<double>(alone - half) * capacity - (sum[alone] - sum[half]);
    const double more = std::max(0.0, std::ceil((sum[half] - sum[i] - left) / capacity));
    best = std::max(best, static_cast<double>(lengths.size() - half) + more);
  }
  return static_cast<uint64_t>(best);
}

// A length that is not 0, in units, and how many samples have it.
struct Class {
  size_t units = 0;
  uint64_t samples = 0;
};

// Limits of the programme's tables: the number of lengths, and lengths times capacity in units.
constexpr size_t kMaxClasses = 64;
constexpr size_t kMaxSteps = size_t{1} << 16;
constexpr int kMaxPatterns = 400;
// Of lengths that are rounded: units of the capacity, patterns, and samples of mean length that a bin may
// hold; shorter ones lose more by rounding than a bound by classes gains. Nor is the programme worth its time
// where samples are few.
constexpr size_t kUnitsRoundedTo = 1024;
constexpr int kMaxPatternsOfRounded = 160;
constexpr double kMaxSamplesOfRounded = 32;
constexpr double kFewestSamplesOfRounded = 1000;
// Of a step's fullest device, which asks for a programme each.
constexpr size_t kMaxLevels = 4;
constexpr size_t kMaxStepsOfALevel = size_t{1} << 12;

// Shortest first; empty where there are too many of them.
std::vector<Class> ClassesOf(const std::vector<uint32_t>& lengths, uint64_t unit) {
  std::map<uint32_t, uint64_t> samples;  // by length
  for (const uint32_t length : lengths) {
    if (length > 0) ++samples[length];
    if (samples.size() > kMaxClasses) return {};
  }
  std::vector<Class> classes;
  for (const auto& [length, count] : samples) classes.push_back({static_cast<size_t>(length / unit), count});
  return classes;
}

// So few classes that the programme's tables stay small: one after the other, the class that loses most by
// rounding is cut where that leaves least.
std::vector<Class> Rounded(const std::vector<Class>& exact) {
  std::vector<double> samples(exact.size() + 1, 0.0), units(exact.size() + 1, 0.0);
  for (size_t k = 0; k < exact.size(); ++k) {
    const double of_class = static_cast<double>(exact[k].samples);
    samples[k + 1] = samples[k] + of_class;
    units[k + 1] = units[k] + of_class * static_cast<double>(exact[k].units);
  }
  const auto loss = [&](size_t begin, size_t end) {
    return units[end] - units[begin] -
           (samples[end] - samples[begin]) * static_cast<double>(exact[begin].units);
  };
  std::vector<size_t> begins = {0, exact.size()};  // of the classes, and the end
  while (begins.size() <= kMaxClasses && begins.size() <= exact.size()) {
    size_t worst = 0;
    for (size_t i = 0; i + 1 < begins.size(); ++i) {
      if (loss(begins[i], begins[i + 1]) > loss(begins[worst], begins[worst + 1])) worst = i;
    }
    const size_t begin = begins[worst], end = begins[worst + 1];
    if (end - begin < 2) break;
    size_t cut = begin + 1;
    for (size_t at = begin + 1; at < end; ++at) {
      if (loss(begin, at) + loss(at, end) < loss(begin, cut) + loss(cut, end)) cut = at;
    }
    begins.insert(begins.begin() + static_cast<ptrdiff_t>(worst) + 1, cut);
  }
  std::vector<Class> classes;
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    classes.push_back({exact[begins[i]].units, 0});
    for (size_t k = begins[i]; k < begins[i + 1]; ++k) classes.back().samples += exact[k].samples;
  }
  return classes;
}

// The most that one bin can weigh, each class as often as it fits; `pattern` has how often. An unbounded
// knapsack: most[c] is the weight of the heaviest bin of c units. O(classes * capacity).
template <typename Weight>
Weight HeaviestBin(const std::vector<Class>& classes, size_t capacity, const std::vector<Weight>& weight,
                   std::vector<uint32_t>* pattern) {
  std::vector<Weight> most(capacity + 1, 0);
  std::vector<uint32_t> last(capacity + 1, ~0u);  // the class that was added; none: a unit stays empty
  for (size_t c = 1; c <= capacity; ++c) {
    most[c] = most[c - 1];
    for (uint32_t k = 0; k < classes.size(); ++k) {
      if (classes[k].units > c) break;
      const Weight with = most[c - classes[k].units] + weight[k];
      if (with > most[c]) most[c] = with, last[c] = k;
    }
  }
  if (pattern != nullptr) {
    pattern->assign(classes.size(), 0);
    for (size_t c = capacity; c > 0;) {
      if (last[c] == ~0u) {
        --c;
      } else {
        ++(*pattern)[last[c]], c -= classes[last[c]].units;
      }
    }
  }
  return most[capacity];
}

// How far the programme is taken: the most patterns, and a number of bins below which a bound is not needed.
struct Effort {
  int most_patterns = 0;
  uint64_t known_bins = 0;
};

// Weights of the classes: the dual prices of the linear programme that covers all samples with as few bins as
// possible. A pattern has how many samples of each class a bin holds; `used` has how many bins the patterns
// of the basis take, a row each. By the simplex method with generated columns (Gilmore and Gomory): the
// weights are the column sums of the basis's inverse; as long as some pattern weighs more than a bin may, the
// heaviest one enters, and the one that it replaces first leaves. O(classes * (classes + capacity)) a
// pattern.
std::vector<double> Weights(const std::vector<Class>& classes, size_t capacity, const Effort& effort) {
  constexpr double kWorthIt = 1e-9;
  const size_t n = classes.size();
  // The basis at first: every class by itself, as often as it fits. Its inverse, and how often each pattern
  // is used.
  std::vector<std::vector<double>> inverse(n, std::vector<double>(n, 0.0));
  std::vector<double> used(n), weight(n);
  for (size_t k = 0; k < n; ++k) {
    const size_t fit = capacity / classes[k].units;
    inverse[k][k] = 1 / static_cast<double>(fit);
    used[k] = static_cast<double>(classes[k].samples) * inverse[k][k];
  }
  std::vector<uint32_t> pattern;
  std::vector<double> column(n);
  for (int generated = 0; generated < effort.most_patterns; ++generated) {
    for (size_t k = 0; k < n; ++k) {
      weight[k] = 0;
      for (size_t row = 0; row < n; ++row) weight[k] += inverse[row][k];
      weight[k] = std::max(0.0, weight[k]);
    }
    // No weights give more bins than these patterns need.
    if (std::accumulate(used.begin(), used.end(), 0.0) <= static_cast<double>(effort.known_bins)) break;
    if (HeaviestBin(classes, capacity, weight, &pattern) <= 1 + kWorthIt) break;
    size_t leaves = n;
    double least = 0;
    for (size_t row = 0; row < n; ++row) {
      column[row] = 0;
      for (size_t k = 0; k < n; ++k) column[row] += inverse[row][k] * pattern[k];
      if (column[row] <= kWorthIt) continue;
      const double ratio = used[row] / column[row];
      if (leaves == n || ratio < least) leaves = row, least = ratio;
    }
    if (leaves == n) break;
    const double pivot = column[leaves];
    for (double& value : inverse[leaves]) value /= pivot;
    used[leaves] /= pivot;
    for (size_t row = 0; row < n; ++row) {
      if (row == leaves || column[row] == 0) continue;
      for (size_t k = 0; k < n; ++k) inverse[row][k] -= column[row] * inverse[leaves][k];
      used[row] = std::max(0.0, used[row] - column[row] * used[leaves]);
    }
  }
  return weight;
}

// Whole weights of the classes, and the most weight that a bin of the given number of units can have.
struct WholeWeights {
  std::vector<uint64_t> of_class;
  uint64_t heaviest = 0;
};
WholeWeights RoundedWeights(const std::vector<Class>& classes, size_t capacity,
                            const Effort& effort = {.most_patterns = kMaxPatterns}) {
  constexpr double kWhole = 1 << 20;
  WholeWeights whole;
  for (double weight : Weights(classes, capacity, effort)) {
    whole.of_class.push_back(static_cast<uint64_t>(std::min(1.0, weight) * kWhole));
  }
  whole.heaviest = HeaviestBin(classes, capacity, whole.of_class, nullptr);
  return whole;
}

// Nothing of use where it is not above effort.known_bins.
uint64_t GilmoreGomory(const std::vector<Class>& classes, size_t capacity, const Effort& effort) {
  const WholeWeights whole = RoundedWeights(classes, capacity, effort);
  if (whole.heaviest == 0) return 0;
  uint64_t all = 0;
  for (size_t k = 0; k < classes.size(); ++k) all += whole.of_class[k] * classes[k].samples;
  return (all + whole.heaviest - 1) / whole.heaviest;
}

// As GilmoreGomory, for any lengths in bins of kUnitsRoundedTo: `samples_of[u]` is the number of samples of u units, and
// `known_bins` a number of bins that suffices.
uint64_t ByClasses(const std::vector<uint64_t>& samples_of, uint64_t known_bins) {
  std::vector<Class> exact;
  double samples = 0, units = 0;
  for (size_t length = 1; length < samples_of.size(); ++length) {
    if (samples_of[length] == 0) continue;
    exact.push_back({length, samples_of[length]});
    samples += static_cast<double>(samples_of[length]);
    units += static_cast<double>(samples_of[length] * length);
  }
  if (samples < kFewestSamplesOfRounded) return 0;
  if (samples * kUnitsRoundedTo > kMaxSamplesOfRounded * units) return 0;
  return GilmoreGomory(Rounded(exact), kUnitsRoundedTo,
                       {.most_patterns = kMaxPatternsOfRounded, .known_bins = known_bins});
}

// Units, of `capacity`, that are in `length`, rounded down whatever the division did.
size_t UnitsIn(double length, double capacity) {
  constexpr double kBelow = 1 - 1e-12;
  return static_cast<size_t>(length / capacity * kUnitsRoundedTo * kBelow);
}

}  // namespace

std::vector<uint64_t> LeastFullest(const Packing& packing, const std::vector<uint32_t>& lengths,
                                   uint64_t capacity, uint64_t unit, size_t devices, size_t steps) {
  const size_t units = static_cast<size_t>(std::min<uint64_t>(capacity / unit, kMaxSteps + 1));
  const std::vector<Class> classes = ClassesOf(lengths, unit);
  if (classes.empty() || classes.size() * units > kMaxStepsOfALevel) return {};
  std::vector<uint64_t> sum(steps, 0);  // units of a step
  const auto each = [&](const auto& take) {
    for (size_t s = 0; s < lengths.size(); ++s) {
      const size_t step = packing.bin[s] / devices;
      if (step < steps) take(step, lengths[s] / unit);
    }
  };
  each([&](size_t step, uint64_t length) { sum[step] += length; });
  const auto bins = [&](size_t step) { return std::min(devices, packing.num_bins - step * devices); };
  std::vector<uint64_t> least(steps);
  for (size_t step = 0; step < steps; ++step) least[step] = (sum[step] + bins(step) - 1) / bins(step);
  // Devices of at most `most` units do not suffice where the step's samples weigh more than all of them can hold.
  // Below the longest sample of all there are no such weights.
  const uint64_t lowest = steps == 0 ? 0 : *std::min_element(least.begin(), least.end());
  const size_t first = std::max<size_t>(lowest, classes.back().units);
  std::vector<uint64_t> weight_of(units + 1, 0), weight(steps);
  for (size_t most = first; most < std::min(units, first + kMaxLevels); ++most) {
    const WholeWeights whole = RoundedWeights(classes, most);
    for (size_t k = 0; k < classes.size(); ++k) weight_of[classes[k].units] = whole.of_class[k];
    std::fill(weight.begin(), weight.end(), 0);
    each([&](size_t step, uint64_t length) { weight[step] += weight_of[length]; });
    bool goes_on = false;
    for (size_t step = 0; step < steps; ++step) {
      if (least[step] <= most && weight[step] > bins(step) * whole.heaviest) least[step] = most + 1;
      goes_on |= least[step] > most;
    }
    if (!goes_on) break;
  }
  for (uint64_t& of_step : least) of_step *= unit;
  return least;
}

uint64_t FewestBins(const PackProblem& problem) {
  uint64_t fewest = problem.lengths.empty() ? 0 : 1;
  std::vector<uint32_t> lengths(problem.lengths.size());
  for (int p = 0; p < problem.num_phases; ++p) {
    if (problem.total[p] == 0) continue;
    const double units = std::floor(problem.capacity[p] / problem.unit[p]);
    const double capacity = units * problem.unit[p];
    for (size_t s = 0; s < lengths.size(); ++s) lengths[s] = problem.lengths[s][p];
    fewest = std::max(fewest, MartelloToth(lengths, capacity));
    const std::vector<Class> classes = ClassesOf(lengths, static_cast<uint64_t>(problem.unit[p]));
    if (!classes.empty() && static_cast<double>(classes.size()) * units <= kMaxSteps) {
      fewest = std::max(fewest, GilmoreGomory(classes, static_cast<size_t>(units),
                                              {.most_patterns = kMaxPatterns, .known_bins = fewest}));
      continue;
    }
    std::vector<uint64_t> samples_of(kUnitsRoundedTo + 1, 0);
    for (const uint32_t length : lengths) ++samples_of[UnitsIn(length, capacity)];
    fewest = std::max(fewest, ByClasses(samples_of, fewest));
  }
  return fewest;
}

uint64_t FewestBinsOfTwoPhases(const PackProblem& problem, uint64_t known_bins) {
  constexpr double kShares[] = {0.25, 0.5, 0.75};
  uint64_t fewest = known_bins;
  for (int p = 0; p < problem.num_phases; ++p) {
    for (int q = p + 1; q < problem.num_phases; ++q) {
      if (problem.total[p] == 0 || problem.total[q] == 0) continue;
      for (const double share : kShares) {
        std::vector<uint64_t> samples_of(kUnitsRoundedTo + 1, 0);
        for (size_t s = 0; s < problem.lengths.size(); ++s) {
          const uint32_t* const length = problem.lengths[s];
          const double mean =
              share * length[p] / problem.capacity[p] + (1 - share) * length[q] / problem.capacity[q];
          ++samples_of[UnitsIn(mean, 1)];
        }
        fewest = std::max(fewest, ByClasses(samples_of, fewest));
      }
    }
  }
  return fewest;
}

}  // namespace evenkeel::reorder
