// Ours, the default: groups follow from a time that all keep, instead of from memory alone.
//
// DHP packs sequences by memory and only then sees what the groups cost. Here:
//
// 1. Cut. Sequences of like length share a microbatch: where memory is full, a long sequence takes longer per
//    token, and short ones beside it would wait. Of all cuts of the sorted batch into as many microbatches as
//    memory asks for, or one or two more, a dynamic programme finds the best by a relaxation.
// 2. Group. For each microbatch the least time is searched within which best fit, dearest first, needs no
// more
//    ranks than there are: a sequence joins the group that it fills best in work, ring and memory, else opens
//    one of the least degree that is fast enough, or enlarges one where that takes fewer ranks.
// 3. Improve. Degrees are set anew; in the best plan so far single sequences leave the slowest group or
// change places with another's,
//    while that makes the slowest group of the microbatch faster.
//
// DHP and static degrees are among the candidates, and so are all of the above with powers of two: no plan is
// slower than theirs.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "reorder/context_parallel_cut.h"
#include "reorder/context_parallel_problem.h"

namespace evenkeel::reorder {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The search for a microbatch's time ends at this precision, or after so many steps.
constexpr double kPrecision = 0.01;
constexpr int kMostSteps = 40;

constexpr double kDegreePrecision = 0.0002;

// A microbatch is as good as spread evenly when so near to it.
constexpr double kAlmostSpread = 0.001;

// Exchanges are looked for among so many sequences of a group, and so many of all are looked at.
constexpr size_t kMostOfAGroup = 16;
constexpr int64_t kMostConsidered = 1 << 14;

// What a group may still take within a time: three budgets, each used up additively. Beyond one rank the time
// is the larger of the two sums (attention + linear) / d and (ring * (d - 1) + linear) / d; see Time.
struct Budget {
  double work = 0;
  double ring = 0;
  uint64_t tokens = 0;

  static Budget Of(const ContextParallelProblem& problem, uint32_t degree, double time) {
    const double left = (time - problem.constant - (degree > 1 ? problem.ring_constant : 0)) * degree;
    return {left, left, degree * problem.tokens_per_rank};
  }
  bool Holds(const GroupLoad& load, uint32_t degree) const {
    return load.tokens <= tokens && load.attention + load.linear <= work &&
           (degree == 1 || load.ring * (degree - 1) + load.linear <= ring);
  }
  void Use(const GroupLoad& load, uint32_t degree) {
    work -= load.attention + load.linear;
    ring -= load.ring * (degree - 1) + load.linear;
    tokens -= load.tokens;
  }
};

// Groups that keep a time, or none where the ranks do not suffice.
class WithinTime {
 public:
  WithinTime(const ContextParallelProblem& problem, double time, bool may_enlarge)
      : problem_(problem), time_(time), may_enlarge_(may_enlarge) {}

  bool Place(uint32_t sequence) {
    const GroupLoad& load = problem_.sequences[sequence];
    size_t group = BestFit(load);
    if (group == kNone) group = OpenOrEnlarge(load);
    if (group == kNone) return false;
    groups_[group].Put(problem_, sequence);
    budgets_[group].Use(load, groups_[group].degree);
    return true;
  }
  Microbatch&& groups() { return std::move(groups_); }

 private:
  static constexpr size_t kNone = ~size_t{0};

  size_t BestFit(const GroupLoad& load) const {
    size_t best = kNone;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (!budgets_[g].Holds(load, groups_[g].degree)) continue;
      if (best == kNone || budgets_[g].work < budgets_[best].work) best = g;
    }
    return best;
  }

  size_t OpenOrEnlarge(const GroupLoad& load) {
    const uint32_t left = problem_.ranks - used_;
    if (left == 0) return kNone;
    uint32_t least = problem_.LeastDegreeWithin(load, time_);
    if (least == 0) least = problem_.ranks + 1;
    size_t enlarged = kNone;
    for (size_t g = 0; may_enlarge_ && least > 1 && g < groups_.size(); ++g) {
      const uint32_t degree = groups_[g].degree;
      GroupLoad both = groups_[g].load;
      both.Add(load);
      // Not on as many ranks as would still be fewer.
      if (!Budget::Of(problem_, degree + least - 1, time_)
               .Holds({.attention = both.attention, .linear = both.linear, .tokens = both.tokens}, 1)) {
        continue;
      }
      const uint32_t needed = problem_.LeastDegreeWithin(both, time_);
      if (needed > degree && needed - degree < least) least = needed - degree, enlarged = g;
    }
    if (least > left) return kNone;
    used_ += least;
    if (enlarged == kNone) {
      groups_.push_back({.degree = least});
      budgets_.push_back(Budget::Of(problem_, least, time_));
      return groups_.size() - 1;
    }
    Group& group = groups_[enlarged];
    group.degree += least;
    budgets_[enlarged] = Budget::Of(problem_, group.degree, time_);
    budgets_[enlarged].Use(group.load, group.degree);
    return enlarged;
  }

  const ContextParallelProblem& problem_;
  const double time_;
  const bool may_enlarge_;
  uint32_t used_ = 0;
  Microbatch groups_;
  std::vector<Budget> budgets_;  // [groups]
};

Microbatch GroupWithin(const ContextParallelProblem& problem, std::span<const uint32_t> dearest_first,
                       double time) {
  for (bool may_enlarge : {false, true}) {
    WithinTime within(problem, time, may_enlarge);
    bool placed = true;
    for (size_t i = 0; placed && i < dearest_first.size(); ++i) placed = within.Place(dearest_first[i]);
    if (placed) return within.groups();
  }
  return {};
}

// The time of a microbatch whose work is spread over all ranks: none takes less.
double SpreadTime(const ContextParallelProblem& problem, const Microbatch& microbatch) {
  double work = 0;
  for (const Group& group : microbatch) work += group.load.attention + group.load.linear;
  return work / problem.ranks + problem.constant;
}

// The least degrees that keep a time; false where the ranks do not suffice.
bool SetDegreesWithin(const ContextParallelProblem& problem, double time, Microbatch& microbatch) {
  std::vector<uint32_t> degrees;
  uint64_t ranks = 0;
  for (const Group& group : microbatch) {
    degrees.push_back(problem.LeastDegreeWithin(group.load, time));
    ranks += degrees.back();
    if (degrees.back() == 0 || ranks > problem.ranks) return false;
  }
  for (size_t g = 0; g < degrees.size(); ++g) microbatch[g].degree = degrees[g];
  return true;
}

// The degrees with which the slowest group of these is as fast as can be.
void SetDegrees(const ContextParallelProblem& problem, Microbatch& microbatch) {
  double low = SpreadTime(problem, microbatch), high = TimeOf(problem, microbatch);
  for (int step = 0; high > low * (1 + kDegreePrecision) && step < kMostSteps; ++step) {
    const double middle = low + (high - low) / 2;
    if (SetDegreesWithin(problem, middle, microbatch)) {
      high = TimeOf(problem, microbatch);
    } else {
      low = middle;
    }
  }
}

GroupLoad LoadOf(const ContextParallelProblem& problem, const std::vector<uint32_t>& sequences) {
  GroupLoad load;
  for (uint32_t s : sequences) load.Add(problem.sequences[s]);
  return load;
}

GroupLoad Exchanged(const GroupLoad& load, const GroupLoad& out, const GroupLoad& in) {
  return {load.attention - out.attention + in.attention, load.linear - out.linear + in.linear,
          load.ring - out.ring + in.ring, load.tokens - out.tokens + in.tokens};
}

// One sequence of the slowest group leaves it, or changes places with another group's, such that the slower
// of the two becomes as fast as can be. False where the slowest group cannot be relieved.
bool RelieveSlowest(const ContextParallelProblem& problem, Microbatch& microbatch, int64_t& to_consider) {
  size_t slowest = 0;
  double now = -1;
  for (size_t g = 0; g < microbatch.size(); ++g) {
    const double time = problem.Time(microbatch[g].load, microbatch[g].degree);
    if (time > now) now = time, slowest = g;
  }
  Group& from = microbatch[slowest];
  double best = now * (1 - 1e-6);
  Group* to = nullptr;
  size_t give = 0, take = 0;
  const auto consider = [&](Group& other, size_t i, size_t j) {
    const GroupLoad& out = problem.sequences[from.sequences[i]];
    const GroupLoad in = j < other.sequences.size() ? problem.sequences[other.sequences[j]] : GroupLoad{};
    const GroupLoad ours = Exchanged(from.load, out, in), theirs = Exchanged(other.load, in, out);
    if (ours.tokens > from.degree * problem.tokens_per_rank ||
        theirs.tokens > other.degree * problem.tokens_per_rank) {
      return;
    }
    const double time = std::max(problem.Time(ours, from.degree), problem.Time(theirs, other.degree));
    if (time < best) best = time, to = &other, give = i, take = j;
  };
  for (Group& other : microbatch) {
    if (&other == &from) continue;
    const size_t ours = std::min(from.sequences.size(), kMostOfAGroup);
    const size_t theirs = std::min(other.sequences.size(), kMostOfAGroup);
    for (size_t i = 0; i < ours; ++i) {
      for (size_t j = 0; j < theirs; ++j) consider(other, i, j);
      if (from.sequences.size() > 1) consider(other, i, other.sequences.size());
    }
    to_consider -= static_cast<int64_t>(ours * theirs);
  }
  if (to == nullptr) return false;
  if (take < to->sequences.size()) {
    std::swap(from.sequences[give], to->sequences[take]);
  } else {
    to->sequences.push_back(from.sequences[give]);
    from.sequences.erase(from.sequences.begin() + static_cast<ptrdiff_t>(give));
  }
  from.load = LoadOf(problem, from.sequences);
  to->load = LoadOf(problem, to->sequences);
  return true;
}

void Improve(const ContextParallelProblem& problem, std::vector<Microbatch>& microbatches) {
  for (Microbatch& microbatch : microbatches) {
    const double enough = SpreadTime(problem, microbatch) * (1 + kAlmostSpread);
    int64_t to_consider = kMostConsidered / static_cast<int64_t>(microbatches.size());
    while (to_consider > 0 && TimeOf(problem, microbatch) > enough &&
           RelieveSlowest(problem, microbatch, to_consider)) {
      SetDegrees(problem, microbatch);
    }
  }
}

// One microbatch of these sequences; empty where no grouping was found.
Microbatch GroupSequences(const ContextParallelProblem& problem, std::span<const uint32_t> dearest_first) {
  double work = 0;
  for (uint32_t s : dearest_first) work += problem.sequences[s].attention + problem.sequences[s].linear;
  double low = work / problem.ranks + problem.constant, high = low * (1 + kPrecision);
  Microbatch best = GroupWithin(problem, dearest_first, high);
  for (int step = 0; best.empty() && step < kMostSteps; ++step) {
    low = high;
    high = step + 1 < kMostSteps ? high * 1.25 + problem.ring_constant : kInfinity;
    best = GroupWithin(problem, dearest_first, high);
  }
  for (int step = 0; !best.empty() && high > low * (1 + kPrecision) && step < kMostSteps; ++step) {
    const double middle = low + (high - low) / 2;
    Microbatch groups = GroupWithin(problem, dearest_first, middle);
    if (groups.empty()) {
      low = middle;
    } else {
      best = std::move(groups), high = std::min(middle, TimeOf(problem, best));
    }
  }
  if (!best.empty()) SetDegrees(problem, best);
  return best;
}

void KeepFaster(const ContextParallelProblem& problem, std::vector<Microbatch> candidate,
                std::vector<Microbatch>& best) {
  if (candidate.empty()) return;
  if (best.empty() || TimeOf(problem, candidate) < TimeOf(problem, best)) best = std::move(candidate);
}

std::vector<Microbatch> CutAndGroup(const ContextParallelProblem& problem) {
  std::vector<Microbatch> best;
  for (const Cut& cut : CutByLength(problem)) {
    if (!best.empty() && cut.time >= TimeOf(problem, best)) continue;
    std::vector<Microbatch> microbatches;
    for (const std::vector<uint32_t>& sequences : cut.microbatches) {
      microbatches.push_back(GroupSequences(problem, sequences));
      if (microbatches.back().empty()) break;
    }
    if (!microbatches.empty() && !microbatches.back().empty()) {
      KeepFaster(problem, std::move(microbatches), best);
    }
  }
  return best;
}

// The best of all methods with this problem's degrees, improved.
std::vector<Microbatch> BestOf(const ContextParallelProblem& problem) {
  std::vector<Microbatch> best = CutAndGroup(problem);
  for (ContextParallelAlgorithm algorithm : {Dhp, StaticDegree}) {
    std::vector<Microbatch> microbatches = algorithm(problem);
    for (Microbatch& microbatch : microbatches) SetDegrees(problem, microbatch);
    KeepFaster(problem, std::move(microbatches), best);
  }
  Improve(problem, best);
  return best;
}

}  // namespace

std::vector<Microbatch> Regroup(const ContextParallelProblem& problem) {
  std::vector<Microbatch> best = BestOf(problem);
  if (problem.powers_of_two) return best;
  ContextParallelProblem powers = problem;
  powers.powers_of_two = true;
  const bool all_fit =
      std::all_of(problem.sequences.begin(), problem.sequences.end(),
                  [&](const GroupLoad& s) { return powers.LeastDegree(s.tokens) <= powers.ranks; });
  if (all_fit) KeepFaster(problem, BestOf(powers), best);
  return best;
}

}  // namespace evenkeel::reorder
