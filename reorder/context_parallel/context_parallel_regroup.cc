// Our default: groups follow from a time that all of them keep, and not from memory alone.
//
// DHP packs sequences by memory and only afterwards sees the cost of the groups. Here:
//
// 1. Start with DHP's packing of the batch, cut in several ways, and with static degrees. 2. Cut. Sequences
// of similar length share a microbatch: if memory is full, a long sequence takes longer per token, and short
// ones in the same microbatch would wait. Of all cuts of the sorted batch into as many microbatches as memory
// requires, or one or two more, a dynamic programme finds the best by a relaxation. 3. Group. For each
// microbatch of a cut, the least time is searched within which best fit, heaviest first, needs no more ranks
// than exist. A sequence joins the group that it fills best in work, ring and memory, else opens one of the
// least degree that is fast enough, or enlarges one if that takes fewer ranks. 4. Improve all plans near the
// best one. Degrees are chosen again; single sequences leave the slowest group or change places with another
// group's, while that makes the slowest of the microbatch faster.
//
// All of this is done with powers of two first. The starts are the results of DHP and static degrees with
// their best degrees, so that no plan is slower than theirs, nor than one with powers of two.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <queue>
#include <span>
#include <utility>

#include "reorder/context_parallel/context_parallel_problem.h"

namespace evenkeel::reorder {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The search for a microbatch's time ends at this precision or after kMaxSteps steps.
constexpr double kPrecision = 0.02;
constexpr int kMaxSteps = 40;

// Groups that take this much longer than the best plan may still become faster than it by exchanges.
constexpr double kMayGain = 1.1;

// The number of starts that are improved, the fastest first.
constexpr size_t kMaxImproved = 3;

// Times that differ by less than this factor may be the same sum in another order.
constexpr double kSameTime = 1 + 1e-9;

// A microbatch this close to an even spread is not improved further.
constexpr double kAlmostSpread = 0.001;

// Exchanges consider this many sequences of a group, and this many in total.
constexpr size_t kMaxOfAGroup = 16;
constexpr int64_t kMaxConsidered = 1 << 13;

// What a group may still take within a time: three budgets that are used up additively. With more than one
// rank the time is the larger of (attention + linear) / d and (ring * (d - 1) + linear) / d; see Time.
struct Budget {
  double work = 0;
  double ring = 0;
  uint64_t tokens = 0;
  double ring_share = 1;

  static Budget Of(const ContextParallelProblem& problem, uint32_t degree, double time) {
    const double left = (time - problem.constant - (degree > 1 ? problem.ring_constant : 0)) * degree;
    return {left, left, degree * problem.tokens_per_rank, problem.RingShare(degree)};
  }
  bool Holds(const GroupLoad& load, uint32_t degree) const {
    return load.tokens <= tokens && load.Work() <= work &&
           (degree == 1 || ring_share * load.ring * (degree - 1) + load.linear <= ring);
  }
  void Use(const GroupLoad& load, uint32_t degree) {
    work -= load.Work();
    ring -= ring_share * load.ring * (degree - 1) + load.linear;
    tokens -= load.tokens;
  }
};

// Builds groups that keep a time, if there are enough ranks. One object serves many searches: a trial only
// computes numbers in reused memory, and groups are built for the best trial.
class Grouper {
 public:
  explicit Grouper(const ContextParallelProblem& problem) : problem_(problem) {
    groups_.reserve(problem.ranks);
    by_work_.reserve(problem.ranks);
  }

  // False: no groups of these sequences keep `time`.
  bool Try(std::span<const uint32_t> heaviest_first, double time) {
    time_ = time;
    fewest_tokens_ = ~uint64_t{0};
    for (uint32_t s : heaviest_first) {
      fewest_tokens_ = std::min(fewest_tokens_, problem_.sequences[s].tokens);
    }
    // First without enlarging groups, which is faster.
    for (bool may_enlarge : {false, true}) {
      if (TryWith(heaviest_first, may_enlarge)) return true;
    }
    return false;
  }

  // The time of the slowest group, and the groups, of the last Try, which succeeded with these sequences.
  double Time() const {
    double time = 0;
    for (const Open& group : groups_) time = std::max(time, problem_.Time(group.load, group.degree));
    return time;
  }
  Microbatch Make(std::span<const uint32_t> heaviest_first) const {
    Microbatch made(groups_.size());
    for (size_t g = 0; g < groups_.size(); ++g) {
      made[g].degree = groups_[g].degree;
      made[g].sequences.reserve(groups_[g].sequences);
    }
    for (size_t i = 0; i < heaviest_first.size(); ++i) made[group_of_[i]].Put(problem_, heaviest_first[i]);
    return made;
  }

 private:
  static constexpr uint32_t kNone = ~0u;

  struct Open {
    uint32_t degree = 0;
    uint32_t sequences = 0;
    GroupLoad load;
    Budget left;
  };
  // The fields that are compared most often, kept together.
  struct Place {
    double work = 0;  // left
    uint32_t group = 0;
    uint64_t tokens = 0;  // left
  };

  // Best fit decreasing: each sequence goes to the group with the least work left that still holds it.
  // by_work_ is kept sorted.
  bool TryWith(std::span<const uint32_t> heaviest_first, bool may_enlarge) {
    groups_.clear(), by_work_.clear();
    used_ = 0;
    group_of_.resize(std::max(group_of_.size(), heaviest_first.size()));
    for (size_t i = 0; i < heaviest_first.size(); ++i) {
      const GroupLoad& load = problem_.sequences[heaviest_first[i]];
      const size_t place = BestFit(load);
      const bool fits = place < by_work_.size();
      const uint32_t group = fits ? by_work_[place].group : OpenOrEnlarge(load, may_enlarge);
      if (group == kNone) return false;
      Open& open = groups_[group];
      ++open.sequences;
      open.load.Add(load);
      open.left.Use(load, open.degree);
      group_of_[i] = group;
      // A group too full for the shortest sequence is dropped from by_work_, unless it could be enlarged.
      if (fits) by_work_.erase(by_work_.begin() + static_cast<ptrdiff_t>(place));
      if (!may_enlarge && open.left.tokens < fewest_tokens_) continue;
      const size_t now = FirstWith(open.left.work, group);
      by_work_.insert(by_work_.begin() + static_cast<ptrdiff_t>(now),
                      {open.left.work, group, open.left.tokens});
    }
    return true;
  }

  // The first place in by_work_ of a group with at least this much work left; among equal ones not before
  // `group`.
  size_t FirstWith(double work, uint32_t group) const {
    const auto before = [&](const Place& place) {
      return place.work < work || (place.work == work && place.group < group);
    };
    return static_cast<size_t>(std::partition_point(by_work_.begin(), by_work_.end(), before) -
                               by_work_.begin());
  }

  // The place of the group with the least work left that holds the sequence.
  size_t BestFit(const GroupLoad& load) const {
    for (size_t i = FirstWith(load.Work(), 0); i < by_work_.size(); ++i) {
      if (by_work_[i].tokens < load.tokens) continue;
      const Open& group = groups_[by_work_[i].group];
      if (group.left.Holds(load, group.degree)) return i;
    }
    return by_work_.size();
  }

  // A group with room for it, which is no longer in by_work_.
  uint32_t OpenOrEnlarge(const GroupLoad& load, bool may_enlarge) {
    const uint32_t left = problem_.ranks - used_;
    if (left == 0) return kNone;
    uint32_t least = problem_.LeastDegreeWithin(load, time_);
    if (least == 0) least = problem_.ranks + 1;
    size_t enlarged = by_work_.size();
    if (may_enlarge && least > 1) {
      // The work that a group must have left so that fewer than `least` more ranks are enough; earlier groups
      // have less.
      const double per_rank = Budget::Of(problem_, 2, time_).work / 2;
      constexpr double kRounding = 1e-9;
      const double work = load.Work();
      const double needed_left = work - (least - 1) * per_rank - kRounding * (work + least * per_rank);
      for (size_t i = FirstWith(needed_left, 0); i < by_work_.size() && least > 1; ++i) {
        const Open& group = groups_[by_work_[i].group];
        GroupLoad both = group.load;
        both.Add(load);
        if (!Budget::Of(problem_, group.degree + least - 1, time_)
                 .Holds({.attention = both.attention, .linear = both.linear, .tokens = both.tokens}, 1)) {
          continue;
        }
        const uint32_t needed = problem_.LeastDegreeWithin(both, time_);
        if (needed > group.degree && needed - group.degree < least) {
          least = needed - group.degree, enlarged = i;
        }
      }
    }
    if (least > left) return kNone;
    used_ += least;
    if (enlarged == by_work_.size()) {
      groups_.push_back({.degree = least, .left = Budget::Of(problem_, least, time_)});
      return static_cast<uint32_t>(groups_.size() - 1);
    }
    const uint32_t number = by_work_[enlarged].group;
    by_work_.erase(by_work_.begin() + static_cast<ptrdiff_t>(enlarged));
    Open& group = groups_[number];
    group.degree += least;
    group.left = Budget::Of(problem_, group.degree, time_);
    group.left.Use(group.load, group.degree);
    return number;
  }

  const ContextParallelProblem& problem_;
  double time_ = 0;
  uint32_t used_ = 0;
  uint64_t fewest_tokens_ = 0;  // of the sequences to be grouped
  std::vector<Open> groups_;
  std::vector<Place> by_work_;      // groups, least work left first
  std::vector<uint32_t> group_of_;  // [sequences in the given order]
};

// The time of a microbatch if its work is spread evenly over all ranks: none is faster.
double SpreadTime(const ContextParallelProblem& problem, const Microbatch& microbatch) {
  double work = 0;
  for (const Group& group : microbatch) work += group.load.Work();
  return work / problem.ranks + problem.constant;
}

// Chooses degrees with which the slowest group is as fast as possible; keeps the present ones if none are
// faster. It begins with the least degrees with which all groups are faster than the slowest one now, and
// gives the slowest group as many more ranks as make it faster, while ranks are left. No faster plan gives a
// group fewer ranks than it has at any moment here.
void SetDegrees(const ContextParallelProblem& problem, Microbatch& microbatch) {
  const double below = std::nextafter(TimeOf(problem, microbatch), 0.0);
  std::vector<uint32_t> degrees;
  degrees.reserve(microbatch.size());
  uint64_t ranks = 0;
  for (const Group& group : microbatch) {
    degrees.push_back(problem.LeastDegreeWithin(group.load, below));
    ranks += degrees.back();
    if (degrees.back() == 0 || ranks > problem.ranks) return;
  }
  std::priority_queue<std::pair<double, uint32_t>> slowest;  // times and groups
  for (uint32_t g = 0; g < microbatch.size(); ++g) {
    slowest.push({problem.Time(microbatch[g].load, degrees[g]), g});
  }
  while (!slowest.empty()) {
    const auto [time, g] = slowest.top();
    const uint32_t degree = problem.LeastDegreeWithin(microbatch[g].load, std::nextafter(time, 0.0));
    // No group is faster than in no time.
    if (degree <= degrees[g] || ranks - degrees[g] + degree > problem.ranks) break;
    ranks += degree - degrees[g];
    degrees[g] = degree;
    slowest.pop();
    slowest.push({problem.Time(microbatch[g].load, degree), g});
  }
  for (size_t g = 0; g < microbatch.size(); ++g) microbatch[g].degree = degrees[g];
}

GroupLoad Exchanged(GroupLoad load, const GroupLoad& out, const GroupLoad& in) {
  load.Take(out);
  load.Add(in);
  return load;
}

// The largest work with which a group can take less than `time`.
double MostWork(const ContextParallelProblem& problem, uint32_t degree, double time) {
  return (time - problem.constant - (degree > 1 ? problem.ring_constant : 0)) * degree;
}

// Moves one sequence out of the slowest group, or exchanges it with one of another group, so that the slower
// of the two becomes as fast as possible. False: the slowest group cannot be relieved.
bool RelieveSlowest(const ContextParallelProblem& problem, Microbatch& microbatch, int64_t& to_consider) {
  size_t slowest = 0;
  double now = -1;
  for (size_t g = 0; g < microbatch.size(); ++g) {
    const double time = problem.Time(microbatch[g].load, microbatch[g].degree);
    if (time > now) now = time, slowest = g;
  }
  Group& from = microbatch[slowest];
  const size_t ours = std::min(from.sequences.size(), kMaxOfAGroup);
  std::array<double, kMaxOfAGroup> work;
  for (size_t i = 0; i < ours; ++i) work[i] = problem.sequences[from.sequences[i]].Work();
  double best = now * (1 - 1e-6);
  Group* to = nullptr;
  size_t give = 0, take = 0;
  for (Group& other : microbatch) {
    if (&other == &from) continue;
    // The work that has to go, and the work that may come in return.
    double least = from.load.Work() - MostWork(problem, from.degree, best);
    double most = MostWork(problem, other.degree, best) - other.load.Work();
    if (least >= most) continue;
    const size_t theirs = std::min(other.sequences.size(), kMaxOfAGroup);
    to_consider -= static_cast<int64_t>(ours * theirs);
    // The last candidate is nothing in return.
    for (size_t j = 0; j <= theirs; ++j) {
      if (j == theirs && from.sequences.size() == 1) continue;
      const GroupLoad in = j < theirs ? problem.sequences[other.sequences[j]] : GroupLoad{};
      for (size_t i = 0; i < ours; ++i) {
        const double goes = work[i] - in.Work();
        if (goes < least || goes > most) continue;
        const GroupLoad& out = problem.sequences[from.sequences[i]];
        const GroupLoad left = Exchanged(from.load, out, in), grown = Exchanged(other.load, in, out);
        if (left.tokens > from.degree * problem.tokens_per_rank ||
            grown.tokens > other.degree * problem.tokens_per_rank) {
          continue;
        }
        const double time = std::max(problem.Time(left, from.degree), problem.Time(grown, other.degree));
        if (time < best) {
          best = time, to = &other, give = i, take = j < theirs ? j : other.sequences.size();
          least = from.load.Work() - MostWork(problem, from.degree, best);
          most = MostWork(problem, other.degree, best) - other.load.Work();
        }
      }
    }
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

std::vector<Microbatch> Improved(const ContextParallelProblem& problem,
                                 std::vector<Microbatch> microbatches) {
  for (Microbatch& microbatch : microbatches) {
    const double enough = SpreadTime(problem, microbatch) * (1 + kAlmostSpread);
    int64_t to_consider = kMaxConsidered / static_cast<int64_t>(microbatches.size());
    do {
      SetDegrees(problem, microbatch);
    } while (to_consider > 0 && TimeOf(problem, microbatch) > enough &&
             RelieveSlowest(problem, microbatch, to_consider));
  }
  return microbatches;
}

// One microbatch of these sequences that takes less than `limit`; empty if no grouping was found.
Microbatch GroupSequences(const ContextParallelProblem& problem, std::span<const uint32_t> heaviest_first,
                          double limit, Grouper& grouper) {
  double work = 0;
  for (uint32_t s : heaviest_first) work += problem.sequences[s].Work();
  double low = work / problem.ranks + problem.constant, high = low * (1 + kPrecision);
  bool found = false;
  // Searched from below: with more time, fewer ranks are used where memory requires more.
  for (int step = 0; !found; ++step) {
    if (!(low < limit) || step > kMaxSteps) return {};
    high = step < kMaxSteps ? std::min(high, limit) : limit;
    found = grouper.Try(heaviest_first, high);
    if (!found) low = high, high = high * 1.25 + problem.ring_constant;
  }
  double within = high, tried = high;
  high = std::min(high, grouper.Time());
  for (int step = 0; high > low * (1 + kPrecision) && step < kMaxSteps; ++step) {
    tried = low + (high - low) / 2;
    if (grouper.Try(heaviest_first, tried)) {
      within = tried, high = std::min(tried, grouper.Time());
    } else {
      low = tried;
    }
  }
  if (tried != within) grouper.Try(heaviest_first, within);
  return grouper.Make(heaviest_first);
}

void KeepFaster(const ContextParallelProblem& problem, std::vector<Microbatch> candidate,
                std::vector<Microbatch>& best) {
  if (candidate.empty()) return;
  if (best.empty() || TimeAsPlanned(problem, candidate) < TimeAsPlanned(problem, best)) {
    best = std::move(candidate);
  }
}

// Groups and improves the cuts that can be faster than `best`.
void CutAndGroup(const ContextParallelProblem& problem, std::vector<Microbatch>& best) {
  Grouper grouper(problem);
  for (const Cut& cut : CutByLength(problem)) {
    const double fastest = TimeOf(problem, best), limit = fastest * kMayGain;
    if (cut.time * (1 + kAlmostSpread) > fastest) continue;
    std::vector<Microbatch> microbatches;
    double least = cut.time;  // time of the grouped part, and a lower bound for the rest
    for (size_t m = 0; m < cut.microbatches.size(); ++m) {
      microbatches.push_back(
          GroupSequences(problem, cut.microbatches[m], limit - (least - cut.times[m]), grouper));
      if (microbatches.back().empty()) break;
      least += std::max(0.0, TimeOf(problem, microbatches.back()) - cut.times[m]);
    }
    if (microbatches.empty() || microbatches.back().empty()) continue;
    KeepFaster(problem, Improved(problem, std::move(microbatches)), best);
  }
}

// The best of all methods with this problem's degrees, of the given packings, and of `best`, improved.
std::vector<Microbatch> BestOf(const ContextParallelProblem& problem,
                               std::vector<std::vector<Microbatch>> packed, std::vector<Microbatch> best) {
  KeepFaster(problem, Improved(problem, best), best);
  double fastest = best.empty() ? kInfinity : TimeOf(problem, best);
  struct Start {
    double time;
    std::vector<Microbatch> microbatches;
  };
  std::vector<Start> starts;
  starts.reserve(packed.size() + 1);
  const auto add = [&](std::vector<Microbatch> start) {
    const double time = TimeOf(problem, start);
    fastest = std::min(fastest, time);
    starts.push_back({time, std::move(start)});
  };
  for (std::vector<Microbatch>& start : packed) {
    for (Microbatch& microbatch : start) SetDegrees(problem, microbatch);
    add(std::move(start));
  }
  std::vector<Microbatch> same_degree = StaticDegreeBelow(problem, fastest * kMayGain);
  if (!same_degree.empty()) add(std::move(same_degree));
  std::erase_if(starts, [&](const Start& start) { return start.time > fastest * kMayGain; });
  std::stable_sort(starts.begin(), starts.end(),
                   [](const Start& a, const Start& b) { return a.time < b.time; });
  for (size_t i = 0; i < starts.size(); ++i) {
    if (i < kMaxImproved) KeepFaster(problem, Improved(problem, starts[i].microbatches), best);
    // Improved only by a rounding, it may be slower once it is planned.
    if (starts[i].time <= fastest * kSameTime) KeepFaster(problem, std::move(starts[i].microbatches), best);
  }
  CutAndGroup(problem, best);
  return best;
}

}  // namespace

std::vector<Microbatch> Regroup(const ContextParallelProblem& problem) {
  if (problem.sequences.empty()) return {};
  if (!problem.at_least.empty()) return BestOf(problem, PackAsDhp(problem), {});
  ContextParallelProblem powers = problem;
  powers.powers_of_two = true;
  bool all_fit = true, are_powers = true;
  for (const GroupLoad& sequence : problem.sequences) {
    const uint32_t degree = powers.LeastDegree(sequence.tokens);
    all_fit &= degree <= powers.ranks;
    are_powers &= degree == problem.LeastDegree(sequence.tokens);
  }
  std::vector<std::vector<Microbatch>> packed = PackAsDhp(problem);
  if (problem.powers_of_two || !all_fit) return BestOf(problem, std::move(packed), {});
  std::vector<Microbatch> best = BestOf(powers, are_powers ? packed : PackAsDhp(powers), {});
  return BestOf(problem, std::move(packed), std::move(best));
}

}  // namespace evenkeel::reorder
