#include "reorder/microbatches.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace evenkeel::reorder {
namespace {

using Samples = std::span<const uint32_t>;

// The samples of every rank, ascending, as one array cut by `begin`.
struct ByRank {
  std::vector<uint32_t> samples;
  std::vector<uint32_t> begin;

  explicit ByRank(const SplitProblem& problem)
      : samples(problem.rank.size()), begin(problem.num_ranks + 1, 0) {
    for (uint32_t r : problem.rank) ++begin[r + 1];
    for (uint32_t r = 0; r < problem.num_ranks; ++r) begin[r + 1] += begin[r];
    std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
    for (uint32_t s = 0; s < samples.size(); ++s) samples[next[problem.rank[s]]++] = s;
  }
  Samples operator[](uint32_t rank) const {
    return {samples.data() + begin[rank], samples.data() + begin[rank + 1]};
  }
};

std::vector<uint32_t> LongestFirst(const SplitProblem& problem, Samples samples) {
  std::vector<uint32_t> order(samples.begin(), samples.end());
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(problem.tokens[b], a) < std::pair(problem.tokens[a], b);
  });
  return order;
}

// Best-fit decreasing. Writes the bin of every sample and returns the number of bins.
uint32_t PackBestFit(const SplitProblem& problem, Samples samples, std::vector<uint32_t>& bin) {
  std::set<std::pair<uint64_t, uint32_t>> room;  // (free tokens, bin)
  uint32_t num_bins = 0;
  for (uint32_t s : LongestFirst(problem, samples)) {
    auto it = room.lower_bound({problem.tokens[s], 0});
    const auto [free, b] = it == room.end() ? std::pair(problem.capacity_tokens, num_bins++) : *it;
    if (it != room.end()) room.erase(it);
    room.emplace(free - problem.tokens[s], b);
    bin[s] = b;
  }
  return num_bins;
}

// Padded: the fewest batches of at most the capacity.
uint32_t CutLeast(const SplitProblem& problem, Samples samples, std::vector<uint32_t>& bin) {
  std::vector<uint32_t> order = LongestFirst(problem, samples);
  uint32_t num_bins = 0;
  uint64_t longest = 0, count = 0;
  for (uint32_t s : order) {  // descending: the first of a batch is its longest
    if (num_bins == 0 || (count + 1) * longest > problem.capacity_tokens) {
      ++num_bins;
      longest = problem.tokens[s];
      count = 0;
    }
    ++count;
    bin[s] = num_bins - 1;
  }
  return num_bins;
}

class Splitter {
 public:
  explicit Splitter(const SplitProblem& problem) : problem_(problem), by_rank_(problem) {
    phases_.push_back(problem.cost);
    for (auto cost : problem.in_view) phases_.push_back(cost);
    for (auto cost : phases_) {
      double total = 0;
      for (Load load : cost) total += static_cast<double>(load);
      per_total_.push_back(total > 0 ? problem.num_ranks / total : 0);
    }
  }

  Split Run() {
    split_.microbatch.assign(problem_.rank.size(), 0);
    split_.num_microbatches = Count();
    if (split_.num_microbatches == 1) return std::move(split_);
    for (uint32_t r = 0; r < problem_.num_ranks; ++r) SplitRank(by_rank_[r]);
    if (!problem_.in_view.empty()) SpreadOverIndices();
    return std::move(split_);
  }

 private:
  // Leaves a feasible split in `split_`.
  uint32_t Count() {
    uint32_t most = 1;
    if (problem_.capacity_tokens > 0) {
      for (uint32_t r = 0; r < problem_.num_ranks; ++r) {
        const Samples samples = by_rank_[r];
        uint64_t total = 0, longest = 0;
        for (uint32_t s : samples) {
          total += problem_.tokens[s];
          longest = std::max<uint64_t>(longest, problem_.tokens[s]);
        }
        if (problem_.batching == Batching::kPadded) total = longest * samples.size();
        if (total <= problem_.capacity_tokens) continue;  // one microbatch will do
        most = std::max(most, problem_.batching == Batching::kPadded
                                  ? CutLeast(problem_, samples, split_.microbatch)
                                  : PackBestFit(problem_, samples, split_.microbatch));
      }
    }
    const uint32_t multiple = std::max(1u, problem_.count_multiple);
    return (most + multiple - 1) / multiple * multiple;
  }

  double Share(size_t phase, uint32_t sample) const {
    return static_cast<double>(phases_[phase][sample]) * per_total_[phase];
  }

  void SplitRank(Samples samples) {
    if (problem_.batching == Batching::kPadded) {
      std::vector<Load> tokens;
      for (uint32_t s : samples) tokens.push_back(problem_.tokens[s]);
      const std::vector<uint32_t> batch = CutIntoBatches(tokens, split_.num_microbatches);
      for (size_t i = 0; i < samples.size(); ++i) split_.microbatch[samples[i]] = batch[i];
      return;
    }
    Balance(samples);
  }

  // The dearest sample first, each to the microbatch with room that it fits best: least growth of the sum
  // over the phases of squared loads. Keeps the feasible split where that runs out of room.
  void Balance(Samples samples) {
    const uint32_t bins = split_.num_microbatches;
    const size_t phases = phases_.size();
    std::vector<std::pair<double, uint32_t>> order;
    for (uint32_t s : samples) {
      double key = 0;
      for (size_t p = 0; p < phases; ++p) key = std::max(key, Share(p, s));
      order.emplace_back(-key, s);
    }
    std::sort(order.begin(), order.end());
    std::vector<double> load(bins * phases, 0);
    std::vector<uint64_t> tokens(bins, 0);
    std::vector<uint32_t> units(bins, 0), chosen(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      const uint32_t s = order[i].second;
      uint32_t best = kNowhere;
      double best_growth = 0;
      for (uint32_t b = 0; b < bins; ++b) {
        if (problem_.capacity_tokens > 0 && tokens[b] + problem_.tokens[s] > problem_.capacity_tokens)
          continue;
        double growth = 0;
        for (size_t p = 0; p < phases; ++p) growth += Share(p, s) * load[b * phases + p];
        if (best == kNowhere || std::pair(growth, units[b]) < std::pair(best_growth, units[best])) {
          best = b;
          best_growth = growth;
        }
      }
      if (best == kNowhere) {
        PackBestFit(problem_, samples, split_.microbatch);
        return;
      }
      chosen[i] = best;
      tokens[best] += problem_.tokens[s];
      ++units[best];
      for (size_t p = 0; p < phases; ++p) load[best * phases + p] += Share(p, s);
    }
    for (size_t i = 0; i < order.size(); ++i) split_.microbatch[order[i].second] = chosen[i];
  }

  // Renumbers the microbatches of every rank, those with most for the encoders first, each to the free index
  // that has least so far over all ranks.
  void SpreadOverIndices() {
    const uint32_t bins = split_.num_microbatches;
    const size_t phases = phases_.size();
    std::vector<double> total(bins * phases, 0), load(bins * phases);
    for (uint32_t r = 0; r < problem_.num_ranks; ++r) {
      std::fill(load.begin(), load.end(), 0);
      for (uint32_t s : by_rank_[r]) {
        for (size_t p = 1; p < phases; ++p) load[split_.microbatch[s] * phases + p] += Share(p, s);
      }
      std::vector<std::pair<double, uint32_t>> order;
      for (uint32_t b = 0; b < bins; ++b) {
        double key = 0;
        for (size_t p = 1; p < phases; ++p) key = std::max(key, load[b * phases + p]);
        order.emplace_back(-key, b);
      }
      std::sort(order.begin(), order.end());
      std::vector<uint32_t> index(bins, kNowhere), taken(bins, 0);
      for (const auto& [key, b] : order) {
        uint32_t best = kNowhere;
        double best_growth = 0;
        for (uint32_t i = 0; i < bins; ++i) {
          if (taken[i]) continue;
          double growth = 0;
          for (size_t p = 1; p < phases; ++p) growth += load[b * phases + p] * total[i * phases + p];
          if (best == kNowhere || growth < best_growth) best = i, best_growth = growth;
        }
        taken[best] = 1;
        index[b] = best;
      }
      for (uint32_t b = 0; b < bins; ++b) {
        for (size_t p = 1; p < phases; ++p) total[index[b] * phases + p] += load[b * phases + p];
      }
      for (uint32_t s : by_rank_[r]) split_.microbatch[s] = index[split_.microbatch[s]];
    }
  }

  const SplitProblem& problem_;
  const ByRank by_rank_;
  std::vector<std::span<const Load>> phases_;
  std::vector<double> per_total_;
  Split split_;
};

}  // namespace

Split SplitIntoMicrobatches(const SplitProblem& problem) { return Splitter(problem).Run(); }

void BatchesInTurn::Rename(Batching batching, std::span<const Load> cost, std::vector<uint32_t>& rank) {
  std::vector<Load> batch(had_.size(), 0), dearest(had_.size(), 0), count(had_.size(), 0);
  for (size_t i = 0; i < cost.size(); ++i) {
    batch[rank[i]] += cost[i];
    dearest[rank[i]] = std::max(dearest[rank[i]], cost[i]);
    ++count[rank[i]];
  }
  for (size_t r = 0; batching == Batching::kPadded && r < batch.size(); ++r) batch[r] = count[r] * dearest[r];
  std::vector<uint32_t> by_batch(had_.size()), by_had(had_.size()), renamed(had_.size());
  std::iota(by_batch.begin(), by_batch.end(), 0u);
  std::iota(by_had.begin(), by_had.end(), 0u);
  std::stable_sort(by_batch.begin(), by_batch.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(group_[a], batch[b]) < std::pair(group_[b], batch[a]);
  });
  std::stable_sort(by_had.begin(), by_had.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(group_[a], had_[a]) < std::pair(group_[b], had_[b]);
  });
  for (size_t k = 0; k < had_.size(); ++k) {
    renamed[by_batch[k]] = by_had[k];
    had_[by_had[k]] += batch[by_batch[k]];
  }
  for (uint32_t& r : rank) r = renamed[r];
}

Split FillInOrder(const SplitProblem& problem) {
  const bool padded = problem.batching == Batching::kPadded;
  Split split{.microbatch = std::vector<uint32_t>(problem.tokens.size(), 0)};
  struct Open {
    uint32_t index = 0;
    uint64_t count = 0, sum = 0, longest = 0;
  };
  std::vector<Open> open(problem.num_ranks);
  for (size_t s = 0; s < problem.tokens.size(); ++s) {
    const uint64_t tokens = problem.tokens[s];
    Open& batch = open[problem.rank[s]];
    const uint64_t grown = padded ? (batch.count + 1) * std::max(batch.longest, tokens) : batch.sum + tokens;
    const bool full = problem.capacity_tokens > 0 && grown > problem.capacity_tokens;
    if (batch.count > 0 && full) batch = {.index = batch.index + 1};
    ++batch.count;
    batch.sum += tokens;
    batch.longest = std::max(batch.longest, tokens);
    split.microbatch[s] = batch.index;
    split.num_microbatches = std::max(split.num_microbatches, batch.index + 1);
  }
  const uint32_t multiple = std::max(1u, problem.count_multiple);
  split.num_microbatches = (split.num_microbatches + multiple - 1) / multiple * multiple;
  return split;
}

}  // namespace evenkeel::reorder
