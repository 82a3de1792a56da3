// Dynamic hybrid parallelism: DHP, section 4.3. Microbatches; in each, memory-aware sequence packing by
// best-fit decreasing; then algorithm 1, the two-dimensional dynamic programme over degrees.
//
// Where the text does not hold, or leaves something open:
// - It does not say how its planner chunks the batch into microbatches. Here the batch is cut, in its order,
//   into as few equal numbers of sequences as fit, that is, whose groups' least degrees add up to at most the
//   ranks; or, where that is faster, each microbatch takes as many sequences in turn as fit.
// - Algorithm 1 backtracks from [K'+1][N+1], one past the end of its table, and from all N ranks, though
//   (6) says at most N and a group may be slower on more ranks: here from the best entry of row K'.
// - The 1/d that (8) lacks and the model states of (7): see context_parallel.h.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "reorder/context_parallel_problem.h"

namespace evenkeel::reorder {
namespace {

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
  Chunker(const ContextParallelProblem& problem, std::vector<uint32_t> order)
      : problem_(problem), packer_(problem), order_(std::move(order)), place_(order_.size()) {
    const std::vector<uint32_t> longest_first = LongestSequencesFirst(problem);
    for (uint32_t i = 0; i < longest_first.size(); ++i) place_[longest_first[i]] = i;
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
      if (FirstTooMany(begin) < end) return {};
      LongestFirst(begin, end);
      if (!packer_.Try(sorted_)) return {};
      chunks.push_back(packer_.Make(sorted_));
    }
    return chunks;
  }

 private:
  // The first place after `begin` with which all ranks together are full.
  size_t FirstTooMany(size_t begin) const {
    uint64_t room = problem_.ranks * problem_.tokens_per_rank;
    size_t end = begin;
    for (; end < order_.size() && problem_.sequences[order_[end]].tokens <= room; ++end) {
      room -= problem_.sequences[order_[end]].tokens;
    }
    return end;
  }

  // What Keep and sorted_ are of: the chunk [begin, end) of the order.
  void LongestFirst(size_t begin, size_t end) {
    by_place_.clear();
    for (size_t i = begin; i < end; ++i) by_place_.push_back(uint64_t{place_[order_[i]]} << 32 | i);
    std::sort(by_place_.begin(), by_place_.end());
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
  std::vector<uint32_t> place_;     // [sequences] among all, longest first
  std::vector<uint64_t> by_place_;  // of a chunk: place, then where it is in the order
  std::vector<uint32_t> sorted_;    // of a chunk: longest first
};

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

std::vector<Microbatch> PackInTurn(const ContextParallelProblem& problem, std::vector<uint32_t> order) {
  return Chunker(problem, std::move(order)).FillInTurn();
}

std::vector<Microbatch> PackEqually(const ContextParallelProblem& problem, size_t most) {
  Chunker chunker(problem, OrderOfTheBatch(problem));
  for (size_t count = 1; count <= std::min(most, problem.sequences.size()); ++count) {
    std::vector<Microbatch> chunks = chunker.CutEqually(count);
    if (!chunks.empty()) return chunks;
  }
  return {};
}

std::vector<Microbatch> Dhp(const ContextParallelProblem& problem) {
  std::vector<Microbatch> in_turn = PackInTurn(problem, OrderOfTheBatch(problem));
  std::vector<Microbatch> equal = PackEqually(problem, 2 * in_turn.size());
  for (std::vector<Microbatch>* microbatches : {&in_turn, &equal}) {
    for (Microbatch& microbatch : *microbatches) AllocateRanks(problem, microbatch);
  }
  return equal.empty() || TimeOf(problem, in_turn) < TimeOf(problem, equal) ? in_turn : equal;
}

}  // namespace evenkeel::reorder
