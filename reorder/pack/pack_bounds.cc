// Lower bounds on the number of bins, so that a planner knows when it is done and a reader why a fill is not
// reached.
//
// Two bounds for each phase by its lengths alone. The second one also bounds the fullest device of a step.
// - Martello and Toth, "Lower bounds and reduction procedures for the bin packing problem" (1990), L2: from
//   the samples of which at most one or two share a bin.
// - Gilmore and Gomory, "A linear programming approach to the cutting stock problem" (1961), if lengths are
//   few different numbers of whole units (tiles, images): a weight for each length such that no bin within
//   its capacity weighs more than one. Then the weights of all samples together are a bound. The weights come
//   from the linear programme in doubles and are rounded to integers; the heaviest possible bin is then
//   computed exactly, so that the bound holds regardless of rounding. If there are many different lengths,
//   each counts as the shortest of its class; clustered lengths lose little by that.
//
// A third bound for two phases together: the mean of a bin's shares of both capacities, with any weights, is
// at most one. Such means are lengths of a single phase, for which the programme gives a bound.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "reorder/pack/pack_problem.h"

namespace evenkeel::reorder {
namespace {

// L2 of one phase: a sample longer than capacity - k shares no bin with a sample of at least k; samples
// longer than half the capacity share no bin with each other; the other samples of at least k fill what these
// leave. With the smallest k this is the total over the capacity, so only the longer samples must be sorted.
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

// A length other than 0 in units, and the number of samples with it.
struct Class {
  size_t units = 0;
  uint64_t samples = 0;
};

// Limits that keep the programme's tables small: number of lengths, and lengths times capacity in units.
constexpr size_t kMaxClasses = 64;
constexpr size_t kMaxSteps = size_t{1} << 16;
constexpr int kMaxPatterns = 400;
// For rounded lengths: units of the capacity, patterns, and samples of mean length in a bin. Shorter samples
// lose more by rounding than a bound by classes gains, and with few samples the programme is not worth its
// time.
constexpr size_t kUnitsRoundedTo = 1024;
constexpr int kMaxPatternsOfRounded = 160;
constexpr double kMaxSamplesOfRounded = 32;
constexpr double kMinSamplesOfRounded = 1000;
// For the fullest device of a step, which needs one programme for every level.
constexpr size_t kMaxLevels = 4;
constexpr size_t kMaxStepsOfALevel = size_t{1} << 12;

// The classes of the lengths, shortest first; empty if there are too many.
std::vector<Class> ClassesOf(const std::vector<uint32_t>& lengths, uint64_t unit) {
  std::vector<uint32_t> found;  // sorted
  std::vector<uint64_t> samples;
  for (const uint32_t length : lengths) {
    if (length == 0) continue;
    const auto at = std::lower_bound(found.begin(), found.end(), length);
    const auto of_class = samples.begin() + (at - found.begin());
    if (at != found.end() && *at == length) {
      ++*of_class;
      continue;
    }
    if (found.size() == kMaxClasses) return {};
    samples.insert(of_class, 1);
    found.insert(at, length);
  }
  std::vector<Class> classes;
  for (size_t k = 0; k < found.size(); ++k) {
    classes.push_back({static_cast<size_t>(found[k] / unit), samples[k]});
  }
  return classes;
}

// Merges classes until there are few enough. Starting from one class, the class that loses most by rounding
// is cut where the two parts lose least.
std::vector<Class> Rounded(const std::vector<Class>& exact) {
  std::vector<double> samples(exact.size() + 1, 0.0), units(exact.size() + 1, 0.0);
  for (size_t k = 0; k < exact.size(); ++k) {
    const double of_class = static_cast<double>(exact[k].samples);
    samples[k + 1] = samples[k] + of_class;
    units[k + 1] = units[k] + of_class * static_cast<double>(exact[k].units);
  }
  // Units lost if all samples of classes [begin, end) are rounded down to the shortest.
  const auto loss = [&](size_t begin, size_t end) {
    return units[end] - units[begin] -
           (samples[end] - samples[begin]) * static_cast<double>(exact[begin].units);
  };
  std::vector<size_t> begins = {0, exact.size()};  // begins of the merged classes, and the end
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

// The heaviest content of one bin, by the unbounded knapsack's dynamic programme over its units. `pattern`
// gets the number of samples of each class.
template <typename Weight>
Weight HeaviestBin(const std::vector<Class>& classes, size_t capacity, const std::vector<Weight>& weight,
                   std::vector<uint32_t>* pattern) {
  // most[c]: the heaviest content of c units; last[c]: the class added last to reach it.
  std::vector<Weight> most(capacity + 1, 0);
  std::vector<uint32_t> last(capacity + 1, ~0u);  // none: this unit stays empty
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

// The effort: the number of patterns to generate, and the number of bins that a bound must exceed to be of
// use.
struct Effort {
  int most_patterns = 0;
  uint64_t known_bins = 0;
};

// The classes' weights, as the dual solution of the linear programme of Gilmore and Gomory: minimise the
// number of bins over patterns (contents of one bin), which are generated one by one by solving a knapsack.
std::vector<double> Weights(const std::vector<Class>& classes, size_t capacity, const Effort& effort) {
  constexpr double kWorthIt = 1e-9;
  const size_t n = classes.size();
  // The first basis has every class alone, as often as it fits. `inverse` is the inverse of the basis matrix,
  // `used` how often each of its patterns is used.
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
    // The dual variables are the column sums of the inverse, because every pattern costs one bin.
    for (size_t k = 0; k < n; ++k) {
      weight[k] = 0;
      for (size_t row = 0; row < n; ++row) weight[k] += inverse[row][k];
      weight[k] = std::max(0.0, weight[k]);
    }
    // The weights' bound never exceeds the number of bins that these patterns use.
    if (std::accumulate(used.begin(), used.end(), 0.0) <= static_cast<double>(effort.known_bins)) break;
    // Entering pattern: the heaviest bin. If it weighs at most one, the weights are optimal.
    if (HeaviestBin(classes, capacity, weight, &pattern) <= 1 + kWorthIt) break;
    // Ratio test: the pattern that reaches zero first leaves the basis.
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
    // Pivot: update the inverse and the usage.
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

// Integer weights of the classes, and the weight of the heaviest bin under them.
struct WholeWeights {
  std::vector<uint64_t> of_class;
  uint64_t heaviest = 0;
};
WholeWeights RoundedWeights(const std::vector<Class>& classes, size_t capacity,
                            const Effort& effort = {.most_patterns = kMaxPatterns}) {
  // Weights are rounded down to multiples of 2^-20.
  constexpr double kWhole = 1 << 20;
  WholeWeights whole;
  for (double weight : Weights(classes, capacity, effort)) {
    whole.of_class.push_back(static_cast<uint64_t>(std::min(1.0, weight) * kWhole));
  }
  whole.heaviest = HeaviestBin(classes, capacity, whole.of_class, nullptr);
  return whole;
}

// The bound. Not useful unless it exceeds effort.known_bins.
uint64_t GilmoreGomory(const std::vector<Class>& classes, size_t capacity, const Effort& effort) {
  const WholeWeights whole = RoundedWeights(classes, capacity, effort);
  if (whole.heaviest == 0) return 0;
  uint64_t all = 0;
  for (size_t k = 0; k < classes.size(); ++k) all += whole.of_class[k] * classes[k].samples;
  return (all + whole.heaviest - 1) / whole.heaviest;
}

// GilmoreGomory for any lengths, rounded to units: samples_of[u] is the number of samples of u units, a bin
// has kUnitsRoundedTo. 0: not applicable.
uint64_t ByClasses(const std::vector<uint64_t>& samples_of, uint64_t known_bins) {
  std::vector<Class> exact;
  double samples = 0, units = 0;
  for (size_t length = 1; length < samples_of.size(); ++length) {
    if (samples_of[length] == 0) continue;
    exact.push_back({length, samples_of[length]});
    samples += static_cast<double>(samples_of[length]);
    units += static_cast<double>(samples_of[length] * length);
  }
  if (samples < kMinSamplesOfRounded) return 0;
  if (samples * kUnitsRoundedTo > kMaxSamplesOfRounded * units) return 0;
  return GilmoreGomory(Rounded(exact), kUnitsRoundedTo,
                       {.most_patterns = kMaxPatternsOfRounded, .known_bins = known_bins});
}

// `length` in units of `capacity` / kUnitsRoundedTo, rounded down even if the division rounded up.
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
  std::vector<uint64_t> sum(steps, 0);  // units of each step
  const auto each = [&](const auto& take) {
    for (size_t s = 0; s < lengths.size(); ++s) {
      const size_t step = packing.bin[s] / devices;
      if (step < steps) take(step, lengths[s] / unit);
    }
  };
  each([&](size_t step, uint64_t length) { sum[step] += length; });
  const auto bins = [&](size_t step) { return std::min(devices, packing.num_bins - step * devices); };
  std::vector<uint64_t> least(steps);
  // First bound: the mean, rounded up.
  for (size_t step = 0; step < steps; ++step) least[step] = (sum[step] + bins(step) - 1) / bins(step);
  // A level of `most` units per device is too low if the step's samples weigh more than its devices can.
  // Levels below the longest sample have no such weights.
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
  // Both bounds for each phase. Capacities are rounded down to whole units.
  for (int p = 0; p < kNumPhases; ++p) {
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
  for (int p = 0; p < kNumPhases; ++p) {
    for (int q = p + 1; q < kNumPhases; ++q) {
      if (problem.total[p] == 0 || problem.total[q] == 0) continue;
      for (const double share : kShares) {
        std::vector<uint64_t> samples_of(kUnitsRoundedTo + 1, 0);
        for (const PhaseLengths& length : problem.lengths) {
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
