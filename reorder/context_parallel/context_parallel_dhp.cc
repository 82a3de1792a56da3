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
#include <optional>
#include <span>
#include <utility>

#include "reorder/context_parallel/context_parallel_problem.h"
#include "reorder/keyed_shuffle.h"

namespace evenkeel::reorder {
namespace {

// How many numbers of microbatches are tried for a sorted batch.
constexpr size_t kMaxNumbers = 2;

// Stage 1. Each of the sequences, longest first, goes to the group with the least memory left that fits it;
// otherwise it opens a group of the least degree that fits it. Empty: there are not enough ranks.
std::optional<Microbatch> PackByMemory(const ContextParallelProblem& problem,
                                       std::span<const uint32_t> longest_first) {
  using Room = std::pair<uint64_t, uint32_t>;  // tokens that still fit into a group, and its number
  std::vector<Room> rooms;                     // least first
  Microbatch groups;
  uint64_t ranks = 0;
  for (uint32_t sequence : longest_first) {
    const uint64_t tokens = problem.sequences[sequence].tokens;
    Room room;
    const auto fits = std::lower_bound(rooms.begin(), rooms.end(), Room(tokens, 0u));
    if (fits != rooms.end()) {
      room = *fits;
      rooms.erase(fits);
    } else {
      const uint32_t degree = problem.LeastDegree(tokens);
      ranks += degree;
      if (ranks > problem.ranks) return std::nullopt;
      room = {degree * problem.tokens_per_rank, static_cast<uint32_t>(groups.size())};
      groups.push_back({.degree = degree});
    }
    groups[room.second].Put(problem, sequence);
    room.first -= tokens;
    rooms.insert(std::lower_bound(rooms.begin(), rooms.end(), room), room);
  }
  return groups;
}

// The batch in an order, cut into chunks that each fit into memory at once.
class Chunker {
 public:
  Chunker(const ContextParallelProblem& problem, std::vector<uint32_t> order,
          std::span<const uint32_t> longest_first)
      : problem_(problem), order_(std::move(order)), place_(order_.size()) {
    for (uint32_t i = 0; i < longest_first.size(); ++i) place_[longest_first[i]] = i;
    before_.reserve(order_.size() + 1);
    before_.push_back(0);
    for (uint32_t s : order_) before_.push_back(before_.back() + problem.sequences[s].tokens);
  }

  // Each chunk is the longest that fits; a single sequence always fits.
  std::vector<Microbatch> FillInTurn() {
    std::vector<Microbatch> chunks;
    for (size_t begin = 0, fits = 0; begin < order_.size(); begin = fits) {
      Microbatch& longest = chunks.emplace_back();
      fits = begin;
      size_t fits_not = FirstTooMany(begin) + 1;
      size_t tried = fits_not - 1;  // all that could fit first
      for (; fits + 1 < fits_not; tried = fits + (fits_not - fits) / 2) {
        if (std::optional<Microbatch> chunk = Pack(begin, tried)) {
          fits = tried, longest = *std::move(chunk);
        } else {
          fits_not = tried;
        }
      }
    }
    return chunks;
  }

  // `count` chunks with equal numbers of sequences, or one more; empty if one of them does not fit.
  std::vector<Microbatch> CutEqually(size_t count) {
    std::vector<Microbatch> chunks;
    for (size_t c = 0; c < count; ++c) {
      const size_t begin = c * order_.size() / count, end = (c + 1) * order_.size() / count;
      std::optional<Microbatch> chunk = Pack(begin, end);
      if (!chunk) return {};
      chunks.push_back(*std::move(chunk));
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
      std::optional<Microbatch> chunk = Pack(begin, end);
      if (!chunk) return {};
      chunks.push_back(*std::move(chunk));
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

  // The groups of the chunk [begin, end) of the order; empty if it does not fit.
  std::optional<Microbatch> Pack(size_t begin, size_t end) const {
    if (FirstTooMany(begin) < end) return std::nullopt;
    std::vector<uint32_t> chunk(order_.begin() + static_cast<ptrdiff_t>(begin),
                                order_.begin() + static_cast<ptrdiff_t>(end));
    std::sort(chunk.begin(), chunk.end(), [&](uint32_t a, uint32_t b) { return place_[a] < place_[b]; });
    return PackByMemory(problem_, chunk);
  }

  const ContextParallelProblem& problem_;
  std::vector<uint32_t> order_;
  std::vector<uint64_t> before_;  // [sequences + 1] prefix sums of tokens in the order
  std::vector<uint32_t> place_;   // [sequences] rank among all, longest first
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

// Stage 2: algorithm 1. dp[k][j] is the least time of the slowest of the first k groups on j ranks together,
// and path[k][j] the degree of group k in it. Degrees are only tried that leave every other group its least
// one. O(groups * ranks^2).
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
  Chunker in_order(problem, InOrder(problem.sequences.size()), longest_first);
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
