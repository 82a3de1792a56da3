// Packs every rank's samples into microbatches, and numbers these so that encoders have equal work for every
// index over all ranks.
#include "reorder/microbatch/microbatches.h"

#include <algorithm>
#include <utility>

#include "reorder/by_rank.h"
#include "reorder/keyed_shuffle.h"

namespace evenkeel::reorder {
namespace {

using Samples = std::span<const uint32_t>;

// Splits the samples of one rank. The samples are scattered in memory and read many times, so their tokens
// and shares are copied here, in the order of the rank's samples.
class RankSplitter {
 public:
  // `phases`: costs of all samples; `per_total`: over the mean load of a rank.
  RankSplitter(const SplitProblem& problem, std::vector<std::span<const Load>> phases,
               std::vector<double> per_total)
      : problem_(problem), phases_(std::move(phases)), per_total_(std::move(per_total)) {}

  void Take(Samples samples) {
    samples_ = samples;
    tokens_.clear();
    for (uint32_t sample : samples) tokens_.push_back(problem_.tokens[sample]);
    microbatch_.resize(samples.size());
  }

  // The number of microbatches that best fit needs; for padded samples the minimum.
  uint32_t Count() {
    uint64_t total = 0, longest = 0;
    for (uint32_t tokens : tokens_) total += tokens, longest = std::max<uint64_t>(longest, tokens);
    const bool padded = problem_.batching == Batching::kPadded;
    if (padded) total = longest * tokens_.size();
    if (total <= problem_.capacity_tokens) return 1;
    return padded ? CutLeast() : PackBestFit();
  }

  // The microbatch of every sample, of `bins`.
  const std::vector<uint32_t>& Split(uint32_t bins) {
    TakeShares();
    if (problem_.batching == Batching::kPadded) {
      microbatch_ = CutIntoBatches(TokensAsLoads(), bins);
    } else if (!Balance(bins)) {
      PackBestFit();
    }
    return microbatch_;
  }

  // The loads of the microbatches in the co-balanced encoders; [bins, phases].
  std::vector<double> EncoderLoads(uint32_t bins) const {
    std::vector<double> load(bins * phases_.size(), 0);
    for (size_t i = 0; i < samples_.size(); ++i) {
      for (size_t p = 1; p < phases_.size(); ++p) load[microbatch_[i] * phases_.size() + p] += ShareOf(i, p);
    }
    return load;
  }

 private:
  double ShareOf(size_t i, size_t phase) const { return shares_[i * phases_.size() + phase]; }

  void TakeShares() {
    const size_t phases = phases_.size();
    shares_.resize(samples_.size() * phases);
    for (size_t p = 0; p < phases; ++p) {
      for (size_t i = 0; i < samples_.size(); ++i) {
        shares_[i * phases + p] = static_cast<double>(phases_[p][samples_[i]]) * per_total_[p];
      }
    }
  }

  std::vector<Load> TokensAsLoads() const { return {tokens_.begin(), tokens_.end()}; }

  // Best-fit decreasing (Johnson 1973): longest first, each into the fullest microbatch that has room.
  uint32_t PackBestFit() {
    std::vector<std::pair<uint64_t, uint32_t>> rooms;  // (room, bin), ascending
    uint32_t num_bins = 0;
    for (uint32_t i : HeaviestFirst(TokensAsLoads())) {
      const auto fits = std::lower_bound(rooms.begin(), rooms.end(), std::pair(uint64_t{tokens_[i]}, 0u));
      std::pair<uint64_t, uint32_t> bin = {problem_.capacity_tokens, num_bins};
      if (fits == rooms.end()) {
        ++num_bins;
      } else {
        bin = *fits;
        rooms.erase(fits);
      }
      bin.first -= tokens_[i];
      microbatch_[i] = bin.second;
      rooms.insert(std::lower_bound(rooms.begin(), rooms.end(), bin), bin);
    }
    return num_bins;
  }

  // Padded: cuts the samples, longest first, into the fewest batches within the capacity.
  uint32_t CutLeast() {
    uint32_t num_bins = 0;
    uint64_t longest = 0, count = 0;
    for (uint32_t i : HeaviestFirst(TokensAsLoads())) {  // the first of a batch is its longest
      if (num_bins == 0 || (count + 1) * longest > problem_.capacity_tokens) {
        ++num_bins;
        longest = tokens_[i];
        count = 0;
      }
      ++count;
      microbatch_[i] = num_bins - 1;
    }
    return num_bins;
  }

  // Assigns samples, heaviest first, to the microbatch with room where the sum over the phases of squared
  // loads grows least, of equal ones the one with fewer samples. Loads are shares of a rank's mean, so that
  // phases of any cost count alike. Returns false if no microbatch has room. O(samples * bins * phases).
  bool Balance(uint32_t bins) {
    const size_t phases = phases_.size();
    std::vector<std::pair<double, uint32_t>> heaviest_first;
    for (uint32_t i = 0; i < samples_.size(); ++i) {
      double key = 0;
      for (size_t p = 0; p < phases; ++p) key = std::max(key, ShareOf(i, p));
      heaviest_first.push_back({-key, i});
    }
    std::sort(heaviest_first.begin(), heaviest_first.end());
    std::vector<double> load(bins * phases, 0);
    std::vector<uint64_t> held(bins, 0);  // tokens
    std::vector<uint32_t> units(bins, 0);
    for (const auto& [key, i] : heaviest_first) {
      uint32_t best = kNowhere;
      double best_growth = 0;
      for (uint32_t b = 0; b < bins; ++b) {
        if (problem_.capacity_tokens > 0 && held[b] + tokens_[i] > problem_.capacity_tokens) continue;
        double growth = 0;
        for (size_t p = 0; p < phases; ++p) growth += ShareOf(i, p) * load[b * phases + p];
        if (best == kNowhere || std::pair(growth, units[b]) < std::pair(best_growth, units[best])) {
          best = b;
          best_growth = growth;
        }
      }
      if (best == kNowhere) return false;
      microbatch_[i] = best;
      held[best] += tokens_[i];
      ++units[best];
      for (size_t p = 0; p < phases; ++p) load[best * phases + p] += ShareOf(i, p);
    }
    return true;
  }

  const SplitProblem& problem_;
  const std::vector<std::span<const Load>> phases_;  // the llm first
  const std::vector<double> per_total_;
  Samples samples_;
  std::vector<uint32_t> tokens_, microbatch_;  // [samples of the rank]
  std::vector<double> shares_;                 // [samples of the rank, phases]
};

// Numbers the microbatches of every rank: in descending order of their encoder load, each gets the free index
// with the lowest load so far over all ranks.
class IndexSpreader {
 public:
  IndexSpreader(uint32_t bins, size_t phases) : bins_(bins), phases_(phases), total_(bins * phases, 0) {}

  // The index of every microbatch of the next rank; `load` is [bins, phases].
  std::vector<uint32_t> Number(const std::vector<double>& load) {
    std::vector<std::pair<double, uint32_t>> order;
    for (uint32_t b = 0; b < bins_; ++b) {
      double key = 0;
      for (size_t p = 1; p < phases_; ++p) key = std::max(key, load[b * phases_ + p]);
      order.emplace_back(-key, b);
    }
    std::sort(order.begin(), order.end());
    std::vector<uint32_t> index(bins_, kNowhere), taken(bins_, 0);
    for (const auto& [key, b] : order) {
      uint32_t best = kNowhere;
      double best_growth = 0;
      for (uint32_t i = 0; i < bins_; ++i) {
        if (taken[i]) continue;
        double growth = 0;
        for (size_t p = 1; p < phases_; ++p) growth += load[b * phases_ + p] * total_[i * phases_ + p];
        if (best == kNowhere || growth < best_growth) best = i, best_growth = growth;
      }
      taken[best] = 1;
      index[b] = best;
    }
    for (uint32_t b = 0; b < bins_; ++b) {
      for (size_t p = 1; p < phases_; ++p) total_[index[b] * phases_ + p] += load[b * phases_ + p];
    }
    return index;
  }

 private:
  const uint32_t bins_;
  const size_t phases_;
  std::vector<double> total_;  // [bins, phases] over the ranks so far
};

// [bins] The position of every microbatch of a rank when they are sorted by cost, the heaviest first; equal
// ones keep their order.
std::vector<uint32_t> PlacesByCost(Samples samples, std::span<const double> cost,
                                   const std::vector<uint32_t>& microbatch, uint32_t bins) {
  std::vector<double> load(bins, 0);
  for (size_t i = 0; i < samples.size(); ++i) load[microbatch[i]] += cost[samples[i]];
  std::vector<uint32_t> order = InOrder(bins), index(bins);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return load[a] > load[b]; });
  for (uint32_t place = 0; place < bins; ++place) index[order[place]] = place;
  return index;
}

// Per phase, the factor that makes the mean load of a rank 1.
std::vector<double> OverMean(const SplitProblem& problem, const std::vector<std::span<const Load>>& phases) {
  std::vector<double> per_total;
  for (const std::span<const Load> cost : phases) {
    double total = 0;
    for (Load load : cost) total += static_cast<double>(load);
    per_total.push_back(total > 0 ? problem.num_ranks / total : 0);
  }
  return per_total;
}

}  // namespace

Split SplitIntoMicrobatches(const SplitProblem& problem) {
  Split split{.microbatch = std::vector<uint32_t>(problem.rank.size(), 0)};
  const uint32_t multiple = std::max(1u, problem.count_multiple);
  if (problem.capacity_tokens == 0 && problem.least_count <= 1 && multiple == 1) return split;
  std::vector<std::span<const Load>> phases = {problem.cost};
  phases.insert(phases.end(), problem.co_balanced.begin(), problem.co_balanced.end());
  const std::vector<std::vector<uint32_t>> by_rank = UnitsByRank(problem.rank, problem.num_ranks);
  RankSplitter rank(problem, phases, OverMean(problem, phases));
  uint32_t most = std::max(1u, problem.least_count);
  for (uint32_t r = 0; problem.capacity_tokens > 0 && r < problem.num_ranks; ++r) {
    rank.Take(by_rank[r]);
    most = std::max(most, rank.Count());
  }
  const uint32_t bins = split.num_microbatches = (most + multiple - 1) / multiple * multiple;
  if (bins == 1) return split;
  IndexSpreader spreader(bins, phases.size());
  for (uint32_t r = 0; r < problem.num_ranks; ++r) {
    const Samples samples = by_rank[r];
    rank.Take(samples);
    const std::vector<uint32_t>& microbatch = rank.Split(bins);
    std::vector<uint32_t> index = InOrder(bins);  // the new number of each
    if (!problem.met_cost.empty()) {
      index = PlacesByCost(samples, problem.met_cost, microbatch, bins);
    } else if (!problem.co_balanced.empty()) {
      index = spreader.Number(rank.EncoderLoads(bins));
    }
    for (size_t i = 0; i < samples.size(); ++i) split.microbatch[samples[i]] = index[microbatch[i]];
  }
  return split;
}

void BatchesInTurn::Rename(Batching batching, std::span<const Load> cost, std::vector<uint32_t>& rank) {
  std::vector<Load> batch(had_.size(), 0);
  for (size_t i = 0; i < cost.size(); ++i) batch[rank[i]] += cost[i];
  if (batching == Batching::kPadded) batch = PaddedLoads(cost, rank, had_.size());
  std::vector<uint32_t> by_batch = InOrder(had_.size()), by_had = by_batch, renamed(had_.size());
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
