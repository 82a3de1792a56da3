// Cuts the sorted batch into microbatches by a relaxation in which ranks can be divided and only work and
// memory count.
//
// A sequence that is given a time needs max(work / time, tokens / tokens per rank) ranks. A microbatch takes
// the least time at which these sum up to the existing ranks, and never less than its heaviest sequence at
// its best degree. Sequences are sorted by work per token, so the first ones are bound by work and the last
// ones by memory, and prefix sums with a moving boundary give the time.
#include <algorithm>
#include <limits>

#include "reorder/context_parallel/context_parallel_problem.h"

namespace evenkeel::reorder {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kMaxPositions = 96;  // where a cut may be
constexpr size_t kMoreMicrobatches = 2;

class Relaxation {
 public:
  // `order`: by work per token, largest first. Time is called with `begin` in `positions`.
  Relaxation(const ContextParallelProblem& problem, const std::vector<uint32_t>& order,
             const std::vector<size_t>& positions)
      : problem_(problem), alone_(order.size(), 0.0) {
    for (uint32_t s : order) {
      const GroupLoad& load = problem.sequences[s];
      work_.push_back(work_.back() + load.Work());
      tokens_.push_back(tokens_.back() + static_cast<double>(load.tokens));
      work_per_token_.push_back(load.tokens > 0 ? load.Work() / static_cast<double>(load.tokens) : 0);
    }
    for (size_t begin : positions) {
      for (size_t i = begin; i < std::min(order.size(), begin + kLooksAt); ++i) {
        alone_[i] = problem.BestTime(problem.sequences[order[i]]);
      }
    }
  }

  // The time of sequences [begin, end) of the order; infinite if they do not fit. `bound_by_memory` is the
  // first sequence that is bound by memory: pass the value for the same begin and the previous end, and the
  // begin at first.
  double Time(size_t begin, size_t last_end, size_t end, size_t& bound_by_memory) const {
    const double ranks = problem_.ranks, held = static_cast<double>(problem_.tokens_per_rank);
    if (tokens_[end] - tokens_[begin] > ranks * held) return kInfinity;
    // At a time equal to its work per token, a sequence needs the same ranks by work and by memory. The
    // boundary is the first sequence at whose time those before it, bound by work, and the rest, bound by
    // memory, fit. It only moves forward to earlier sequences as `end` grows.
    size_t& low = bound_by_memory;
    if (low == last_end) low = end;
    const auto fits = [&](size_t i) {
      const double time = work_per_token_[i] * held;
      return time > 0 && work_[i] - work_[begin] <= time * (ranks - (tokens_[end] - tokens_[i]) / held);
    };
    while (low > begin && !fits(low - 1)) --low;
    const double left = ranks - (tokens_[end] - tokens_[low]) / held;
    double time = left > 0 ? (work_[low] - work_[begin]) / left : 0;
    if (low < end) time = std::max(time, work_per_token_[low] * held);
    double alone = 0;
    for (size_t i = begin; i < std::min(end, begin + kLooksAt); ++i) alone = std::max(alone, alone_[i]);
    return std::max(time + problem_.constant, alone);
  }

 private:
  static constexpr size_t kLooksAt = 2;  // the heaviest sequences come first

  const ContextParallelProblem& problem_;
  std::vector<double> work_{0.0}, tokens_{0.0};  // [sequences + 1] prefix sums
  std::vector<double> work_per_token_;           // [sequences]
  std::vector<double> alone_;                    // [sequences] only of those that Time looks at
};

std::vector<size_t> Positions(size_t sequences) {
  const size_t steps = std::min(sequences, kMaxPositions);
  std::vector<size_t> positions;
  for (size_t i = 0; i <= steps; ++i) positions.push_back(i * sequences / std::max<size_t>(1, steps));
  return positions;
}

}  // namespace

std::vector<Cut> CutByLength(const ContextParallelProblem& problem) {
  const size_t count = problem.sequences.size();
  if (count == 0) return {};
  std::vector<uint32_t> order = DearestSequencesFirst(problem);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const GroupLoad &x = problem.sequences[a], &y = problem.sequences[b];
    return x.Work() * static_cast<double>(y.tokens) > y.Work() * static_cast<double>(x.tokens);
  });
  // Cuts are only made at some positions, which bounds the dynamic programme.
  const std::vector<size_t> positions = Positions(count);
  const Relaxation relaxation(problem, order, positions);
  const size_t steps = positions.size() - 1;
  std::vector<double> time((steps + 1) * (steps + 1), kInfinity);
  for (size_t i = 0; i < steps; ++i) {
    size_t bound_by_memory = positions[i];
    for (size_t j = i + 1; j <= steps; ++j) {
      time[i * (steps + 1) + j] =
          relaxation.Time(positions[i], positions[j - 1], positions[j], bound_by_memory);
      if (time[i * (steps + 1) + j] == kInfinity) break;
    }
  }
  // least[m][j]: time of the first j steps in m microbatches; from[m][j]: begin of the last of them.
  // O(steps^2) for each number of microbatches.
  std::vector<std::vector<double>> least(1, std::vector<double>(steps + 1, kInfinity));
  std::vector<std::vector<size_t>> from(1, std::vector<size_t>(steps + 1, 0));
  least[0][0] = 0;
  std::vector<Cut> cuts;
  for (size_t m = 1; m <= steps && cuts.size() <= kMoreMicrobatches; ++m) {
    least.emplace_back(steps + 1, kInfinity);
    from.emplace_back(steps + 1, 0);
    for (size_t i = m - 1; i < steps; ++i) {
      if (least[m - 1][i] == kInfinity) continue;
      for (size_t j = i + 1; j <= steps; ++j) {
        const double sum = least[m - 1][i] + time[i * (steps + 1) + j];
        if (sum < least[m][j]) least[m][j] = sum, from[m][j] = i;
      }
    }
    if (least[m][steps] == kInfinity) continue;
    Cut& cut = cuts.emplace_back();
    cut.time = least[m][steps];
    cut.microbatches.resize(m), cut.times.resize(m);
    for (size_t k = m, end = steps; k > 0; end = from[k][end], --k) {
      cut.microbatches[k - 1].assign(order.begin() + static_cast<ptrdiff_t>(positions[from[k][end]]),
                                     order.begin() + static_cast<ptrdiff_t>(positions[end]));
      cut.times[k - 1] = time[from[k][end] * (steps + 1) + end];
    }
  }
  return cuts;
}

}  // namespace evenkeel::reorder
