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

// Groups that keep a time, or none where the ranks do not suffice. One object for many searches: they are
// tried by numbers alone, in memory that is there, and made only of the best.
class Grouper {
 public:
  explicit Grouper(const ContextParallelProblem& problem) : problem_(problem) {
    groups_.reserve(problem.ranks);
    by_work_.reserve(problem.ranks);
  }

  // False where no groups of these sequences keep `time`.
  bool Try(std::span<const uint32_t> dearest_first, double time) {
    time_ = time;
    fewest_tokens_ = ~uint64_t{0};
    for (uint32_t s : dearest_first) {
      fewest_tokens_ = std::min(fewest_tokens_, problem_.sequences[s].tokens);
    }
    for (bool may_enlarge : {false, true}) {
      if (TryWith(dearest_first, may_enlarge)) return true;
    }
    return false;
  }

  // What the slowest group takes, and the groups, after a Try that succeeded with these sequences.
  double Time() const {
    double time = 0;
    for (const Open& group : groups_) time = std::max(time, problem_.Time(group.load, group.degree));
    return time;
  }
  Microbatch Make(std::span<const uint32_t> dearest_first) const {
    Microbatch made(groups_.size());
    for (size_t g = 0; g < groups_.size(); ++g) made[g].degree = groups_[g].degree;
    for (size_t i = 0; i < dearest_first.size(); ++i) made[group_of_[i]].Put(problem_, dearest_first[i]);
    return made;
  }

 private:
  static constexpr uint32_t kNone = ~0u;

  struct Open {
    uint32_t degree = 0;
    GroupLoad load;
    Budget left;
  };

  bool TryWith(std::span<const uint32_t> dearest_first, bool may_enlarge) {
    groups_.clear(), by_work_.clear();
    used_ = 0;
    group_of_.resize(std::max(group_of_.size(), dearest_first.size()));
    for (size_t i = 0; i < dearest_first.size(); ++i) {
      const GroupLoad& load = problem_.sequences[dearest_first[i]];
      const size_t place = BestFit(load);
      uint32_t group = kNone;
      if (place < by_work_.size()) {
        group = by_work_[place];
        by_work_.erase(by_work_.begin() + static_cast<ptrdiff_t>(place));
      } else {
        group = OpenOrEnlarge(load, may_enlarge);
        if (group == kNone) return false;
      }
      groups_[group].load.Add(load);
      groups_[group].left.Use(load, groups_[group].degree);
      group_of_[i] = group;
      // What holds not even the shortest is looked at no more, unless it could be enlarged.
      if (!may_enlarge && groups_[group].left.tokens < fewest_tokens_) continue;
      by_work_.insert(by_work_.begin() + static_cast<ptrdiff_t>(FirstWith(groups_[group].left.work, group)),
                      group);
    }
    return true;
  }

  // The first place in by_work_ of a group that has so much work left, of equal ones not before `group`.
  size_t FirstWith(double work, uint32_t group) const {
    size_t low = 0, high = by_work_.size();
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      const double left = groups_[by_work_[middle]].left.work;
      if (left < work || (left == work && by_work_[middle] < group)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  // The place of the group that has least work left of those that hold it.
  size_t BestFit(const GroupLoad& load) const {
    for (size_t i = FirstWith(load.attention + load.linear, 0); i < by_work_.size(); ++i) {
      const Open& group = groups_[by_work_[i]];
      if (group.left.Holds(load, group.degree)) return i;
    }
    return by_work_.size();
  }

  // A group with room for it, which is in by_work_ no more.
  uint32_t OpenOrEnlarge(const GroupLoad& load, bool may_enlarge) {
    const uint32_t left = problem_.ranks - used_;
    if (left == 0) return kNone;
    uint32_t least = problem_.LeastDegreeWithin(load, time_);
    if (least == 0) least = problem_.ranks + 1;
    uint32_t enlarged = kNone;
    if (may_enlarge && least > 1) {
      // What a group must have left if fewer ranks than `least` more are to do: those before have not.
      const double per_rank = Budget::Of(problem_, 2, time_).work / 2;
      constexpr double kRounding = 1e-9;
      const double work = load.attention + load.linear;
      const double needed_left = work - (least - 1) * per_rank - kRounding * (work + least * per_rank);
      for (size_t i = FirstWith(needed_left, 0); i < by_work_.size() && least > 1; ++i) {
        const Open& group = groups_[by_work_[i]];
        GroupLoad both = group.load;
        both.Add(load);
        if (!Budget::Of(problem_, group.degree + least - 1, time_)
                 .Holds({.attention = both.attention, .linear = both.linear, .tokens = both.tokens}, 1)) {
          continue;
        }
        const uint32_t needed = problem_.LeastDegreeWithin(both, time_);
        if (needed > group.degree && needed - group.degree < least) {
          least = needed - group.degree, enlarged = by_work_[i];
        }
      }
    }
    if (least > left) return kNone;
    used_ += least;
    if (enlarged == kNone) {
      groups_.push_back({.degree = least, .left = Budget::Of(problem_, least, time_)});
      return static_cast<uint32_t>(groups_.size() - 1);
    }
    by_work_.erase(std::find(by_work_.begin(), by_work_.end(), enlarged));
    Open& group = groups_[enlarged];
    group.degree += least;
    group.left = Budget::Of(problem_, group.degree, time_);
    group.left.Use(group.load, group.degree);
    return enlarged;
  }

  const ContextParallelProblem& problem_;
  double time_ = 0;
  uint32_t used_ = 0;
  uint64_t fewest_tokens_ = 0;  // of the sequences that are grouped
  std::vector<Open> groups_;
  std::vector<uint32_t> by_work_;   // groups, least work left first
  std::vector<uint32_t> group_of_;  // [sequences as they came]
};

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
    // A rank by itself is faster only with less work.
    if (from.degree == 1 && out.attention + out.linear <= in.attention + in.linear) return;
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
Microbatch GroupSequences(const ContextParallelProblem& problem, std::span<const uint32_t> dearest_first,
                          Grouper& grouper) {
  double work = 0;
  for (uint32_t s : dearest_first) work += problem.sequences[s].attention + problem.sequences[s].linear;
  double low = work / problem.ranks + problem.constant, high = low * (1 + kPrecision);
  bool found = grouper.Try(dearest_first, high);
  for (int step = 0; !found && step < kMostSteps; ++step) {
    low = high;
    high = step + 1 < kMostSteps ? high * 1.25 + problem.ring_constant : kInfinity;
    found = grouper.Try(dearest_first, high);
  }
  if (!found) return {};
  Microbatch best = grouper.Make(dearest_first);
  for (int step = 0; high > low * (1 + kPrecision) && step < kMostSteps; ++step) {
    const double middle = low + (high - low) / 2;
    if (grouper.Try(dearest_first, middle)) {
      best = grouper.Make(dearest_first), high = std::min(middle, grouper.Time());
    } else {
      low = middle;
    }
  }
  SetDegrees(problem, best);
  return best;
}

void KeepFaster(const ContextParallelProblem& problem, std::vector<Microbatch> candidate,
                std::vector<Microbatch>& best) {
  if (candidate.empty()) return;
  if (best.empty() || TimeOf(problem, candidate) < TimeOf(problem, best)) best = std::move(candidate);
}

// Cuts that can be faster than `best`, grouped.
void CutAndGroup(const ContextParallelProblem& problem, std::vector<Microbatch>& best) {
  Grouper grouper(problem);
  for (const Cut& cut : CutByLength(problem)) {
    const double limit = best.empty() ? kInfinity : TimeOf(problem, best);
    std::vector<Microbatch> microbatches;
    double least = cut.time;  // of what is grouped the time, of the rest what it takes at least
    for (size_t m = 0; m < cut.microbatches.size() && least < limit; ++m) {
      microbatches.push_back(GroupSequences(problem, cut.microbatches[m], grouper));
      if (microbatches.back().empty()) break;
      least += std::max(0.0, TimeOf(problem, microbatches.back()) - cut.times[m]);
    }
    if (microbatches.size() == cut.microbatches.size() && !microbatches.back().empty()) {
      KeepFaster(problem, std::move(microbatches), best);
    }
  }
}

// The best of all methods with this problem's degrees, improved.
std::vector<Microbatch> BestOf(const ContextParallelProblem& problem) {
  std::vector<Microbatch> best;
  for (ContextParallelAlgorithm algorithm : {StaticDegree, Dhp}) {
    std::vector<Microbatch> microbatches = algorithm(problem);
    for (Microbatch& microbatch : microbatches) SetDegrees(problem, microbatch);
    KeepFaster(problem, std::move(microbatches), best);
  }
  CutAndGroup(problem, best);
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
