// DistTrain, algorithm 2: inter-microbatch reordering (Zhang et al., "DistTrain: Addressing Model and Data
// Heterogeneity with Disaggregated Training for Multimodal Large Language Models", SIGCOMM 2025,
// section 5.3), and its form for virtual stages.
//
// The smallest microbatch goes first, so that every stage starts early. The p - 1 next smallest go last,
// because nothing fills the intervals before their backwards on the first stage. Those in between are chosen
// one by one, each so that its forward on the first stage fills the interval where it runs. The first
// interval, from the first forward to its backward, takes p - 1 microbatches at once.
//
// Differences from the paper's text: its loop runs to l - p, which needs p - 2 more microbatches than remain;
// here it ends when none remain. A microbatch's size is its time on all stages; the paper takes the time in
// encoder and generator, which differs by the same amount for all microbatches. With virtual stages a
// microbatch has v forwards on the first stage in v intervals; the paper says no more. Those intervals depend
// on microbatches that are not chosen yet: the mean microbatch stands in for them.
#include <algorithm>
#include <cmath>
#include <utility>

#include "reorder/pipeline/microbatch_order.h"

namespace evenkeel::reorder {
namespace {

class InterReorder {
 public:
  // `clock` must be one of `problem`.
  InterReorder(const PipelineProblem& problem, PipelineClock clock)
      : given_(problem),
        chunks_(problem.num_chunks()),
        clock_(std::move(clock)),
        stand_in_(AddStandIn(problem, clock_)),
        left_(InOrder(problem.num_microbatches())) {
    std::stable_sort(left_.begin(), left_.end(), [&](uint32_t a, uint32_t b) { return Size(a) < Size(b); });
  }

  std::vector<uint32_t> Run() {
    if (left_.empty()) return {};
    Choose(0);
    const size_t rear_size = std::min<size_t>(given_.stages - 1, left_.size());
    const std::vector<uint32_t> rear(left_.begin(), left_.begin() + static_cast<ptrdiff_t>(rear_size));
    left_.erase(left_.begin(), left_.begin() + static_cast<ptrdiff_t>(rear_size));
    if (!left_.empty()) FillFirstInterval();
    while (!left_.empty()) Choose(SelectClosest(Intervals()));
    chosen_.insert(chosen_.end(), rear.begin(), rear.end());
    return std::move(chosen_);
  }

 private:
  double Forward(uint32_t m, uint32_t chunk) const { return given_.forward[size_t{m} * chunks_ + chunk]; }

  double Size(uint32_t m) const {
    double size = 0;
    for (size_t i = size_t{m} * chunks_; i < size_t{m + 1} * chunks_; ++i) {
      size += given_.forward[i] + given_.backward[i];
    }
    return size;
  }

  // Time of all forwards of a microbatch on the first stage.
  double OnFirst(uint32_t m) const {
    double sum = 0;
    for (uint32_t c = 0; c < chunks_; c += given_.stages) sum += Forward(m, c);
    return sum;
  }

  void Choose(size_t of_left) {
    chosen_.push_back(left_[of_left]);
    left_.erase(left_.begin() + static_cast<ptrdiff_t>(of_left));
  }

  // SELECTCLOSEST(mb, p - 1, interval): each choice is the closest to its share of the rest of the interval.
  void FillFirstInterval() {
    double interval = FirstInterval();
    for (uint32_t picks = given_.stages - 1; picks > 0 && !left_.empty(); --picks) {
      const double share = interval / picks;
      size_t closest = 0;
      for (size_t i = 1; i < left_.size(); ++i) {
        if (std::abs(OnFirst(left_[i]) - share) < std::abs(OnFirst(left_[closest]) - share)) closest = i;
      }
      interval -= OnFirst(left_[closest]);
      Choose(closest);
    }
  }

  // SELECTCLOSEST(mb, 1, interval), with one forward for every interval.
  size_t SelectClosest(const std::vector<double>& intervals) const {
    size_t closest = 0;
    double least = INFINITY;
    for (size_t i = 0; i < left_.size(); ++i) {
      double unfilled = 0;
      for (size_t j = 0; j < intervals.size(); ++j) {
        unfilled += std::abs(Forward(left_[i], static_cast<uint32_t>(j) * given_.stages) - intervals[j]);
      }
      if (unfilled < least) least = unfilled, closest = i;
    }
    return closest;
  }

  // The first interval: from the first microbatch's forward on the first stage to its backward there.
  double FirstInterval() {
    clock_.Try(InPlaces(), 0);
    double interval = clock_.StartOfBackward(0) - clock_.EndOfForward(0);
    for (uint32_t c = given_.stages; c < chunks_; c += given_.stages) interval -= Forward(chosen_[0], c);
    return std::max(0.0, interval);
  }

  // GETINTERVAL: how long the first stage waits between each forward of the next microbatch, if these took no
  // time, and the following backward. Without virtual stages only chosen microbatches matter.
  std::vector<double> Intervals() {
    const uint32_t p = given_.stages, v = given_.virtual_stages;
    const uint32_t next = static_cast<uint32_t>(chosen_.size());
    clock_.Try(InPlaces(), 0);
    std::vector<double> intervals;
    for (uint32_t j = 0; j < v; ++j) {
      const uint32_t k = v == 1 ? next : next / p * p * v + j * p + next % p;
      intervals.push_back(clock_.WaitAfterForward(k));
    }
    return intervals;
  }

  // The chosen microbatches, with the stand-in in all places that are still free.
  std::vector<uint32_t> InPlaces() const {
    std::vector<uint32_t> order = chosen_;
    order.resize(given_.num_microbatches(), stand_in_);
    return order;
  }

  // The mean microbatch, without time on the first stage.
  static uint32_t AddStandIn(const PipelineProblem& problem, PipelineClock& clock) {
    const uint32_t chunks = problem.num_chunks(), microbatches = problem.num_microbatches();
    const auto mean = [&](const std::vector<double>& times) {
      std::vector<double> out(chunks, 0);
      for (size_t i = 0; i < times.size(); ++i) {
        if (i % chunks % problem.stages != 0) out[i % chunks] += times[i] / microbatches;
      }
      return out;
    };
    return clock.AddMicrobatch(mean(problem.forward), mean(problem.backward));
  }

  const PipelineProblem& given_;
  const uint32_t chunks_;
  PipelineClock clock_;
  const uint32_t stand_in_;
  std::vector<uint32_t> left_;  // smallest first
  std::vector<uint32_t> chosen_;
};

}  // namespace

std::vector<uint32_t> DistTrainOrder(const OrderProblem& problem) {
  if (problem.pipeline.schedule != PipelineSchedule::kGPipe) {
    return InterReorder(problem.pipeline, PipelineClock(problem.pipeline, problem.alike)).Run();
  }
  // The algorithm is defined for 1F1B only.
  PipelineProblem as_1f1b = problem.pipeline;
  as_1f1b.schedule = PipelineSchedule::k1F1B;
  return InterReorder(as_1f1b, PipelineClock(as_1f1b)).Run();
}

}  // namespace evenkeel::reorder
