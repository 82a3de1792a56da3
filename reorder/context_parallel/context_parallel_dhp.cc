// Dynamic hybrid parallelism: DHP, section 4.3. The batch is cut into microbatches. In each, sequences are
// packed by memory with best-fit decreasing; then algorithm 1, the two-dimensional dynamic programme, chooses
// the degrees.
//
// Where the text is open or wrong:
// - It does not say how its planner cuts the batch. Several ways are tried, and the cost model decides.
//   First, each microbatch takes as many sequences in turn as fit, that is, whose groups' least degrees sum
//   up to at most the ranks. Second, as few equal numbers of sequences as fit. Third, as in FlexSP, whose
//   objective the paper extends (4.1): Y. Wang et al., "FlexSP: Accelerating Large Language Model Training
//   via Flexible Sequence Parallelism", 2025, sorts the batch, cuts it so that the largest microbatch has the
//   fewest tokens, and tries a few numbers of microbatches from the fewest on, because more microbatches
//   leave ranks for the dynamic programme. Fourth, the sorted batch in equal numbers of sequences that divide
//   the ranks.
// - Algorithm 1 backtracks from [K'+1][N+1], one past the end of its table, and from all N ranks, though (6)
//   says at most N and a group may be slower on more ranks. Here it starts at the best entry of row K'.
// - The 1/d that (8) lacks, and the model states of (7): see context_parallel.h.
#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "reorder/context_parallel/context_parallel_problem.h"

namespace evenkeel::reorder {
namespace {

// How many numbers of microbatches are tried for a sorted batch.
constexpr size_t kMaxNumbers = 2;

// Stage 1 for many chunks: a trial only computes numbers in reused memory; groups are built for the chosen
// ones.
class Packer {
 public:
  explicit Packer(const ContextParallelProblem& problem)
      : problem_(problem), group_of_(problem.sequences.size()) {}

  // Places each of `sequences`, longest first, in the group with the least memory left that fits it;
  // otherwise opens a group of the least degree that fits it. False: there are not enough ranks.
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

  // The groups of the last Try, which succeeded with these sequences.
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
  using Room = std::pair<uint64_t, uint32_t>;  // tokens that still fit into a group, and its number

  const ContextParallelProblem& problem_;
  std::vector<uint32_t> degrees_;   // of the groups
  std::vector<Room> rooms_;         // of groups that fit another sequence, least first
  std::vector<uint32_t> group_of_;  // [sequences]
};

// The batch in an order, cut into chunks that each fit into memory at once.
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

  // Each chunk is the longest that fits; a single sequence always fits.
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

  // `count` chunks with equal numbers of sequences, or one more; empty if one of them does not fit.
  std::vector<Microbatch> CutEqually(size_t count) {
    std::vector<Microbatch> chunks;
    for (size_t c = 0; c < count; ++c) {
      const size_t begin = c * order_.size() / count, end = (c + 1) * order_.size() / count;
      if (!PutChunk(begin, end, chunks)) return {};
    }
    return chunks;
  }

  // No fewer chunks have room for all tokens.
  size_t FewestByTokens() const {
    const uint64_t tokens = before_.back(), holds = problem_.ranks * problem_.tokens_per_rank;
    return static_cast<size_t>(tokens / holds + (tokens % holds != 0));
  }

  // At most `count` chunks, of which the largest has the fewest tokens; empty if one of them does not fit.
  std::vector<Microbatch> CutEvenly(size_t count) {
    uint64_t low = 0, high = before_.back();  // the fewest tokens that the largest can have is in [low, high]
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
  // The end of the longest chunk from `begin` on that fits on all ranks together.
  size_t FirstTooMany(size_t begin) const {
    return EndWithin(begin, problem_.ranks * problem_.tokens_per_rank);
  }
  // The end of the longest chunk from `begin` on with at most `tokens` tokens.
  size_t EndWithin(size_t begin, uint64_t tokens) const {
    const auto above = std::upper_bound(before_.begin() + static_cast<ptrdiff_t>(begin), before_.end(),
                                        before_[begin] + tokens);
    return static_cast<size_t>(above - before_.begin()) - 1;
  }
  // The number of chunks of at most `tokens` tokens, which is at least the longest sequence.
  size_t ChunksWithin(uint64_t tokens) const {
    size_t chunks = 0;
    for (size_t begin = 0; begin < order_.size(); ++chunks) begin = EndWithin(begin, tokens);
    return chunks;
  }

  // False: the chunk does not fit.
  bool PutChunk(size_t begin, size_t end, std::vector<Microbatch>& chunks) {
    if (FirstTooMany(begin) < end) return false;
    LongestFirst(begin, end);
    if (!packer_.Try(sorted_)) return false;
    chunks.push_back(packer_.Make(sorted_));
    return true;
  }

  // Sorts the chunk [begin, end) of the order by length, for Keep.
  void LongestFirst(size_t begin, size_t end) {
    by_place_.clear();
    for (size_t i = begin; i < end; ++i) by_place_.push_back(uint64_t{place_[order_[i]]} << 32 | i);
    if (!is_sorted_) std::sort(by_place_.begin(), by_place_.end());
    Keep(end);
  }

  // Fills sorted_ with the part of that chunk before `end`, longest first.
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
  std::vector<uint64_t> before_;    // [sequences + 1] prefix sums of tokens in the order
  std::vector<uint32_t> place_;     // [sequences] rank among all, longest first
  std::vector<uint64_t> by_place_;  // of a chunk: rank, then position in the order
  std::vector<uint32_t> sorted_;    // of a chunk: longest first
};

// Cuts the batch into as few equal numbers of sequences as fit, if that is at most `most`.
void AddEqualChunks(Chunker& chunker, size_t most, std::vector<std::vector<Microbatch>>& ways) {
  for (size_t count = std::max<size_t>(1, chunker.FewestByTokens()); count <= most; ++count) {
    std::vector<Microbatch> chunks = chunker.CutEqually(count);
    if (chunks.empty()) continue;
    ways.push_back(std::move(chunks));
    return;
  }
}

// Cuts the sorted batch into the fewest microbatches of even tokens that fit (at most `most`), and into one
// more, or a sixteenth more if there are many. Also into equal numbers of sequences, such that the mean
// sequence gets one rank, two or four: the first two of these that fit, with at most twice as many
// microbatches.
void AddSortedChunks(const ContextParallelProblem& problem, Chunker& chunker, size_t most,
                     std::vector<std::vector<Microbatch>>& ways) {
  const auto add = [&](std::vector<Microbatch> chunks) {
    if (!chunks.empty()) ways.push_back(std::move(chunks));
    return ways.size();
  };
  size_t before = ways.size();
  for (size_t count = chunker.FewestByTokens(); count <= most; count += std::max<size_t>(1, count / 16)) {
    if (add(chunker.CutEvenly(count)) - before == kMaxNumbers) break;
  }
  before = ways.size();
  const size_t sequences = problem.sequences.size();
  for (uint32_t degree = 1; degree <= problem.ranks; degree *= 2) {
    const size_t count = (sequences * degree + problem.ranks - 1) / problem.ranks;
    if (count > 2 * most || add(chunker.CutEqually(count)) - before == kMaxNumbers) break;
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
  std::vector<std::vector<Microbatch>> ways;  // the first of several equally fast ways is taken
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
