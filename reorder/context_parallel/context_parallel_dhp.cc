// Dynamic hybrid parallelism: DHP, section 4.3. Microbatches; in each, memory-aware sequence packing by
// best-fit decreasing; then algorithm 1, the two-dimensional dynamic programme over degrees.
//
// Where the text does not hold, or leaves something open:
// - It does not say how its planner chunks the batch. Several ways are tried, and the cost model decides.
//   Each microbatch takes as many sequences in turn as fit, that is, whose groups' least degrees add up to at
//   most the ranks. As few equal numbers of sequences as fit. And as FlexSP has it, whose objective the paper
//   extends (4.1): Y. Wang et al., "FlexSP: Accelerating Large Language Model Training via Flexible Sequence
//   Parallelism", 2025, sorts the batch, cuts it such that the largest microbatch has the fewest tokens, and
//   tries a few numbers of microbatches from the fewest on: with more, ranks are left over for the dynamic
//   programme. Beside it the sorted batch is cut into equal numbers of sequences that divide the ranks.
// - Algorithm 1 backtracks from [K'+1][N+1], one past the end of its table, and from all N ranks, though
//   (6) says at most N and a group may be slower on more ranks: here from the best entry of row K'.
// - The 1/d that (8) lacks and the model states of (7): see context_parallel.h.
#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "reorder/context_parallel/context_parallel_problem.h"

namespace evenkeel::reorder {
namespace {

// Numbers of microbatches that are tried for a sorted batch.
constexpr size_t kMostNumbers = 2;

// Stage 1 of many chunks: by numbers alone, in memory that is there, and made only of those that are kept.
class Packer {
 public:
  explicit Packer(const ContextParallelProblem& problem)
      : problem_(problem), group_of_(problem.sequences.size()) {}

  // Each of `sequences`, which come longest first, to the group with least memory left of those where it
  // fits; else it opens one with the least degree that holds it. False where the ranks do not suffice.
  bool Try(std::span<const uint32_t> sequences) {
    degrees_.clear(), rooms_.clear();
    uint64_t ranks = 0;
    const uint64_t shortest = sequences.empty() ? 0 : problem_.sequences[sequences.back()].tokens;
    for (uint32_t sequence : sequences) {
      const uint64_t tokens = problem_.sequences[sequence].tokens;
      Room room;
      const auto fits = std::lower_bound(rooms_.begin(), rooms_.end(), Room(tokens, 0u));
      if (fits != rooms_.end()) {
        room = *fits;
        rooms_.erase(fits);
      } else {
        const uint32_t degree = problem_.LeastDegree(tokens);
        ranks += degree;
        if (ranks > problem_.ranks) return false;
        room = {degree * problem_.tokens_per_rank, static_cast<uint32_t>(degrees_.size())};
        degrees_.push_back(degree);
      }
      group_of_[sequence] = room.second;
      room.first -= tokens;
      if (room.first < shortest) continue;
      rooms_.insert(std::lower_bound(rooms_.begin(), rooms_.end(), room), room);
    }
    return true;
  }

  // The groups, after a Try that succeeded with these sequences.
  Microbatch Make(std::span<const uint32_t> sequences) const {
    Microbatch groups(degrees_.size());
    std::vector<uint32_t> count(degrees_.size(), 0);
    for (uint32_t sequence : sequences) ++count[group_of_[sequence]];
    for (size_t g = 0; g < groups.size(); ++g) {
      groups[g].degree = degrees_[g];
      groups[g].sequences.reserve(count[g]);
    }
    for (uint32_t sequence : sequences) groups[group_of_[sequence]].Put(problem_, sequence);
    return groups;
  }

 private:
  using Room = std::pair<uint64_t, uint32_t>;  // tokens that a group still holds, and its number

  const ContextParallelProblem& problem_;
  std::vector<uint32_t> degrees_;   // of the groups
  std::vector<Room> rooms_;         // of the groups that hold another sequence, least first
  std::vector<uint32_t> group_of_;  // [sequences]
};

// The batch, in an order, as chunks that each fit into memory at once.
class Chunker {
 public:
  Chunker(const ContextParallelProblem& problem, std::vector<uint32_t> order,
          std::span<const uint32_t> longest_first)
      : problem_(problem), packer_(problem), order_(std::move(order)), place_(order_.size()) {
    for (uint32_t i = 0; i < longest_first.size(); ++i) place_[longest_first[i]] = i;
    before_.reserve(order_.size() + 1);
    before_.push_back(0);
    for (uint32_t s : order_) before_.push_back(before_.back() + problem.sequences[s].tokens);
    is_sorted_ = std::equal(order_.begin(), order_.end(), longest_first.begin());
  }

  // Each chunk the longest that fits; a single sequence always does.
  std::vector<Microbatch> FillInTurn() {
    std::vector<Microbatch> chunks;
    for (size_t begin = 0; begin < order_.size();) {
      const size_t most = FirstTooMany(begin);
      LongestFirst(begin, most);
      size_t fits = begin, fits_not = most + 1, tried = most;  // all that could fit first
      bool found = packer_.Try(sorted_);
      (found ? fits : fits_not) = most;
      while (fits + 1 < fits_not) {
        tried = fits + (fits_not - fits) / 2;
        Keep(tried);
        found = packer_.Try(sorted_);
        (found ? fits : fits_not) = tried;
      }
      if (tried != fits) {
        Keep(fits);
        packer_.Try(sorted_);
      }
      chunks.push_back(packer_.Make(sorted_));
      begin = fits;
    }
    return chunks;
  }

  // `count` chunks of as many sequences each, or one more; none where one of them does not fit.
  std::vector<Microbatch> CutEqually(size_t count) {
    std::vector<Microbatch> chunks;
    for (size_t c = 0; c < count; ++c) {
      const size_t begin = c * order_.size() / count, end = (c + 1) * order_.size() / count;
      if (!PutChunk(begin, end, chunks)) return {};
    }
    return chunks;
  }

  // No fewer chunks hold all tokens.
  size_t FewestByTokens() const {
    const uint64_t tokens = before_.back(), holds = problem_.ranks * problem_.tokens_per_rank;
    return static_cast<size_t>(tokens / holds + (tokens % holds != 0));
  }

  // At most `count` chunks of which the largest has the fewest tokens; none where one of them does not fit.
  std::vector<Microbatch> CutEvenly(size_t count) {
    uint64_t low = 0, high = before_.back();  // the least that the largest can have is in [low, high]
    for (const GroupLoad& sequence : problem_.sequences) low = std::max(low, sequence.tokens);
    while (low < high) {
      const uint64_t most = low + (high - low) / 2;
      if (ChunksWithin(most) <= count) {
        high = most;
      } else {
        low = most + 1;
      }
    }
    std::vector<Microbatch> chunks;
    for (size_t begin = 0, end = 0; begin < order_.size(); begin = end) {
      end = EndWithin(begin, low);
      if (!PutChunk(begin, end, chunks)) return {};
    }
    return chunks;
  }

 private:
  // The first place after `begin` with which all ranks together are full.
  size_t FirstTooMany(size_t begin) const {
    return EndWithin(begin, problem_.ranks * problem_.tokens_per_rank);
  }
  // The end of the longest chunk from `begin` on that has at most so many tokens.
  size_t EndWithin(size_t begin, uint64_t tokens) const {
    const auto above = std::upper_bound(before_.begin() + static_cast<ptrdiff_t>(begin), before_.end(),
                                        before_[begin] + tokens);
    return static_cast<size_t>(above - before_.begin()) - 1;
  }
  // How many chunks of at most so many tokens, no less than any sequence has.
  size_t ChunksWithin(uint64_t tokens) const {
    size_t chunks = 0;
    for (size_t begin = 0; begin < order_.size(); ++chunks) begin = EndWithin(begin, tokens);
    return chunks;
  }

  // False where it does not fit.
  bool PutChunk(size_t begin, size_t end, std::vector<Microbatch>& chunks) {
    if (FirstTooMany(begin) < end) return false;
    LongestFirst(begin, end);
    if (!packer_.Try(sorted_)) return false;
    chunks.push_back(packer_.Make(sorted_));
    return true;
  }

  // What Keep and sorted_ are of: the chunk [begin, end) of the order.
  void LongestFirst(size_t begin, size_t end) {
    by_place_.clear();
    for (size_t i = begin; i < end; ++i) by_place_.push_back(uint64_t{place_[order_[i]]} << 32 | i);
    if (!is_sorted_) std::sort(by_place_.begin(), by_place_.end());
    Keep(end);
  }

  // Of that chunk what comes before `end`.
  void Keep(size_t end) {
    sorted_.clear();
    for (uint64_t placed : by_place_) {
      const size_t i = placed & 0xffffffffu;
      if (i < end) sorted_.push_back(order_[i]);
    }
  }

  const ContextParallelProblem& problem_;
  Packer packer_;
  std::vector<uint32_t> order_;
  bool is_sorted_ = false;          // longest first
  std::vector<uint64_t> before_;    // [sequences + 1] tokens of those that come before in the order
  std::vector<uint32_t> place_;     // [sequences] among all, longest first
  std::vector<uint64_t> by_place_;  // of a chunk: place, then where it is in the order
  std::vector<uint32_t> sorted_;    // of a chunk: longest first
};

// The batch in as few equal numbers of sequences as fit, if at most `most`.
void AddEqualChunks(Chunker& chunker, size_t most, std::vector<std::vector<Microbatch>>& ways) {
  for (size_t count = std::max<size_t>(1, chunker.FewestByTokens()); count <= most; ++count) {
    std::vector<Microbatch> chunks = chunker.CutEqually(count);
    if (chunks.empty()) continue;
    ways.push_back(std::move(chunks));
    return;
  }
}

// The sorted batch: into the fewest microbatches of even tokens that fit, at most `most`, and one number
// more; where there are many, a sixteenth more. And into equal numbers of sequences, as many as have one rank
// each on the mean, or two, or four: the first two of these that fit, at most twice as many.
void AddSortedChunks(const ContextParallelProblem& problem, Chunker& chunker, size_t most,
                     std::vector<std::vector<Microbatch>>& ways) {
  const auto add = [&](std::vector<Microbatch> chunks) {
    if (!chunks.empty()) ways.push_back(std::move(chunks));
    return ways.size();
  };
  size_t before = ways.size();
  for (size_t count = chunker.FewestByTokens(); count <= most; count += std::max<size_t>(1, count / 16)) {
    if (add(chunker.CutEvenly(count)) - before == kMostNumbers) break;
  }
  before = ways.size();
  const size_t sequences = problem.sequences.size();
  for (uint32_t degree = 1; degree <= problem.ranks; degree *= 2) {
    const size_t count = (sequences * degree + problem.ranks - 1) / problem.ranks;
    if (count > 2 * most || add(chunker.CutEqually(count)) - before == kMostNumbers) break;
  }
}

}  // namespace

// Stage 2: algorithm 1.
void AllocateRanks(const ContextParallelProblem& problem, Microbatch& microbatch) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const size_t groups = microbatch.size(), width = problem.ranks + 1;
  std::vector<double> dp((groups + 1) * width, kInfinity);
  std::vector<uint32_t> path((groups + 1) * width, 0), least(groups + 1, 0);
  uint64_t remaining = 0;
  for (size_t k = 1; k <= groups; ++k) {
    least[k] = problem.LeastDegree(microbatch[k - 1].load.tokens);
    remaining += least[k];
  }
  dp[0] = 0;
  uint64_t before = 0;  // least degrees of groups 1 to k - 1
  for (size_t k = 1; k <= groups; ++k) {
    remaining -= least[k];
    for (uint64_t d = least[k]; before + d + remaining <= problem.ranks;
         d = problem.NextDegree(static_cast<uint32_t>(d))) {
      const double time = problem.Time(microbatch[k - 1].load, static_cast<uint32_t>(d));
      for (uint64_t j = before + d; j + remaining <= problem.ranks; ++j) {
        const double cost = std::max(dp[(k - 1) * width + j - d], time);
        if (cost < dp[k * width + j]) {
          dp[k * width + j] = cost;
          path[k * width + j] = static_cast<uint32_t>(d);
        }
      }
    }
    before += least[k];
  }
  const auto last_row = dp.begin() + static_cast<ptrdiff_t>(groups * width);
  size_t q = static_cast<size_t>(std::min_element(last_row, dp.end()) - last_row);
  for (size_t p = groups; p > 0; --p) {
    microbatch[p - 1].degree = path[p * width + q];
    q -= microbatch[p - 1].degree;
  }
}

std::vector<std::vector<Microbatch>> PackAsDhp(const ContextParallelProblem& problem) {
  const std::vector<uint32_t> longest_first = LongestSequencesFirst(problem);
  Chunker in_order(problem, OrderOfTheBatch(problem), longest_first);
  std::vector<Microbatch> in_turn = in_order.FillInTurn();
  const size_t most = std::min(2 * in_turn.size(), problem.sequences.size());
  std::vector<std::vector<Microbatch>> ways;  // of equally fast ones the first is taken
  AddEqualChunks(in_order, most, ways);
  ways.push_back(std::move(in_turn));
  Chunker sorted(problem, longest_first, longest_first);
  AddSortedChunks(problem, sorted, most, ways);
  return ways;
}

std::vector<Microbatch> Dhp(const ContextParallelProblem& problem) {
  std::vector<Microbatch> best;
  for (std::vector<Microbatch>& packed : PackAsDhp(problem)) {
    for (Microbatch& microbatch : packed) AllocateRanks(problem, microbatch);
    if (best.empty() || TimeOf(problem, packed) < TimeOf(problem, best)) best = std::move(packed);
  }
  return best;
}

}  // namespace evenkeel::reorder
