// Builds the graph of a schedule's operations, simulates it as a longest path, and computes the lower bound.
#include "reorder/pipeline/pipeline_schedule.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reorder/by_name.h"

namespace evenkeel::reorder {
namespace {

constexpr uint64_t kMaxOps = 1 << 24;

// In the order of the enum.
struct NamedSchedule {
  std::string_view name;
  PipelineSchedule schedule;
};
constexpr NamedSchedule kSchedules[] = {{"1f1b", PipelineSchedule::k1F1B},
                                        {"interleaved_1f1b", PipelineSchedule::kInterleaved1F1B},
                                        {"gpipe", PipelineSchedule::kGPipe}};

// An operation of a stage's schedule: `position` is its microbatch's position in the order.
struct Slot {
  uint32_t position = 0;
  uint32_t chunk = 0;
  bool backward = false;
};

// The k-th forward (or backward) of a stage. Interleaved, the stage takes p * v operations for each group of
// p microbatches: all p through its first chunk, then all through its second, ...; backwards from the last
// one.
Slot KthSlot(const PipelineProblem& problem, uint32_t stage, uint32_t k, bool backward) {
  if (problem.schedule != PipelineSchedule::kInterleaved1F1B) return {k, stage, backward};
  const uint32_t p = problem.stages, v = problem.virtual_stages;
  const uint32_t group = k / (p * v), turn = k % (p * v) / p;
  return {group * p + k % p, (backward ? v - 1 - turn : turn) * p + stage, backward};
}

// The number of forwards of a stage before its first backward, without the one directly before it.
uint32_t WarmUp(const PipelineProblem& problem, uint32_t stage) {
  const uint32_t p = problem.stages, v = problem.virtual_stages;
  const uint32_t all = problem.num_microbatches() * v;
  switch (problem.schedule) {
    case PipelineSchedule::kGPipe:
      return all;
    case PipelineSchedule::kInterleaved1F1B:
      return std::min(all, 2 * (p - stage - 1) + (v - 1) * p);
    case PipelineSchedule::k1F1B:
      break;
  }
  return std::min(all, p - stage - 1);
}

std::vector<Slot> SlotsOfStage(const PipelineProblem& problem, uint32_t stage) {
  const uint32_t all = problem.num_microbatches() * problem.virtual_stages;
  const uint32_t warm_up = WarmUp(problem, stage);
  std::vector<Slot> slots;
  slots.reserve(2 * size_t{all});
  for (uint32_t k = 0; k < warm_up; ++k) slots.push_back(KthSlot(problem, stage, k, false));
  for (uint32_t k = 0; k < all; ++k) {
    if (k + warm_up < all) slots.push_back(KthSlot(problem, stage, k + warm_up, false));
    slots.push_back(KthSlot(problem, stage, k, true));
  }
  return slots;
}

// The operation whose result `slot` takes, if any.
std::optional<Slot> Needed(const PipelineProblem& problem, const Slot& slot) {
  if (slot.backward && slot.chunk + 1 == problem.num_chunks()) return Slot{slot.position, slot.chunk, false};
  if (slot.backward) return Slot{slot.position, slot.chunk + 1, true};
  if (slot.chunk > 0) return Slot{slot.position, slot.chunk - 1, false};
  return std::nullopt;
}

// Small enough that no sum of times overflows a double.
bool IsTime(double time) { return time >= 0 && time <= 1e290; }

// For any one value: the sum of the `count` largest of the others.
class LargestOthers {
 public:
  // `count` must be less than the number of values.
  LargestOthers(const std::vector<double>& values, uint32_t count) : values_(values), descending_(values) {
    std::sort(descending_.begin(), descending_.end(), std::greater<>());
    for (uint32_t i = 0; i < count; ++i) sum_ += descending_[i];
    next_ = descending_[count];
    least_ = count == 0 ? INFINITY : descending_[count - 1];
  }
  double Without(uint32_t one) const { return values_[one] >= least_ ? sum_ - values_[one] + next_ : sum_; }

 private:
  const std::vector<double>& values_;
  std::vector<double> descending_;
  double sum_ = 0, next_ = 0, least_ = 0;
};

// The minimum of a[i] + b[j] over i != j; with only one microbatch, over i == j.
double LeastOfTwo(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() == 1) return a[0] + b[0];
  double least = INFINITY;
  std::vector<uint32_t> by_b(b.size());
  for (uint32_t j = 0; j < by_b.size(); ++j) by_b[j] = j;
  std::partial_sort(by_b.begin(), by_b.begin() + 2, by_b.end(),
                    [&](uint32_t i, uint32_t j) { return b[i] < b[j]; });
  for (uint32_t i = 0; i < a.size(); ++i) {
    least = std::min(least, a[i] + b[by_b[0] == i ? by_b[1] : by_b[0]]);
  }
  return least;
}

// The time of a stage before the first and after the last microbatch, in addition to its own work.
class StageBound {
 public:
  StageBound(const PipelineProblem& problem, uint32_t stage)
      : problem_(problem), stage_(stage), microbatches_(problem.num_microbatches()) {}

  double Bound() const {
    std::vector<double> first(microbatches_), last(microbatches_);
    double work = 0;
    for (uint32_t m = 0; m < microbatches_; ++m) {
      first[m] = Sum(problem_.forward, m, 0, stage_) + stage_ * problem_.transfer;
      last[m] = Sum(problem_.backward, m, 0, stage_) + stage_ * problem_.transfer;
      for (uint32_t c = stage_; c < problem_.num_chunks(); c += problem_.stages) {
        work += At(problem_.forward, m, c) + At(problem_.backward, m, c);
      }
    }
    AddReturns(first, last);
    return LeastOfTwo(first, last) + work;
  }

 private:
  double At(const std::vector<double>& times, uint32_t m, uint32_t chunk) const {
    return times[size_t{m} * problem_.num_chunks() + chunk];
  }
  double Sum(const std::vector<double>& times, uint32_t m, uint32_t begin, uint32_t end) const {
    double sum = 0;
    for (uint32_t c = begin; c < end; ++c) sum += At(times, m, c);
    return sum;
  }

  // Between the first microbatch's forward and its backward a stage has only the other forwards of its
  // warm-up; between the last one's forward and backward only the other remaining backwards. If the first
  // backward comes after the last forward, both waits are the same.
  void AddReturns(std::vector<double>& first, std::vector<double>& last) const {
    if (problem_.schedule == PipelineSchedule::kInterleaved1F1B) return;
    const uint32_t warm_up = WarmUp(problem_, stage_), chunks = problem_.num_chunks();
    const uint32_t others = std::min(warm_up, microbatches_ - 1);
    std::vector<double> forward(microbatches_), backward(microbatches_);
    for (uint32_t m = 0; m < microbatches_; ++m) {
      forward[m] = At(problem_.forward, m, stage_);
      backward[m] = At(problem_.backward, m, stage_);
    }
    const LargestOthers forwards(forward, others), backwards(backward, others);
    for (uint32_t m = 0; m < microbatches_; ++m) {
      const double away = Sum(problem_.forward, m, stage_ + 1, chunks) +
                          Sum(problem_.backward, m, stage_ + 1, chunks) +
                          2 * (chunks - stage_ - 1) * problem_.transfer;
      first[m] += std::max(0.0, away - forwards.Without(m));
      if (warm_up + 1 < microbatches_) last[m] += std::max(0.0, away - backwards.Without(m));
    }
  }

  const PipelineProblem& problem_;
  const uint32_t stage_;
  const uint32_t microbatches_;
};

}  // namespace

std::string_view PipelineScheduleName(PipelineSchedule schedule) {
  return kSchedules[static_cast<size_t>(schedule)].name;
}

std::optional<PipelineSchedule> PipelineScheduleFromName(std::string_view name) {
  const NamedSchedule* const named = FindByName(kSchedules, name);
  return named == nullptr ? std::nullopt : std::optional(named->schedule);
}

absl::Status CheckPipeline(const PipelineProblem& problem) {
  if (problem.stages == 0 || problem.virtual_stages == 0) {
    return absl::InvalidArgumentError("a pipeline has at least one stage and one virtual stage");
  }
  const uint64_t chunks = uint64_t{problem.stages} * problem.virtual_stages;
  if (chunks > kMaxOps || 2 * problem.forward.size() > kMaxOps) {
    return absl::InvalidArgumentError(absl::StrCat("a pipeline of ", chunks, " chunks and ",
                                                   2 * problem.forward.size(), " operations: at most ",
                                                   kMaxOps, " are simulated"));
  }
  if (problem.forward.size() % chunks != 0 || problem.backward.size() != problem.forward.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(problem.forward.size(), " forward and ", problem.backward.size(),
                     " backward times: every microbatch needs one of each for each of ", chunks, " chunks"));
  }
  const bool interleaved = problem.schedule == PipelineSchedule::kInterleaved1F1B;
  if (problem.virtual_stages > 1 && !interleaved) {
    return absl::InvalidArgumentError(
        absl::StrCat(problem.virtual_stages, " virtual stages need the schedule interleaved_1f1b"));
  }
  if (interleaved && problem.num_microbatches() % problem.stages != 0) {
    return absl::InvalidArgumentError(absl::StrCat(problem.num_microbatches(),
                                                   " microbatches are not a multiple of the ", problem.stages,
                                                   " stages, which interleaving needs; add empty ones"));
  }
  const auto is_no_time = [](double time) {
    return absl::StrCat("is ", time, "; expected a number from 0 to 1e290");
  };
  if (!IsTime(problem.transfer)) {
    return absl::InvalidArgumentError(absl::StrCat("transfer ", is_no_time(problem.transfer)));
  }
  for (const bool backward : {false, true}) {
    const std::vector<double>& times = backward ? problem.backward : problem.forward;
    for (size_t i = 0; i < times.size(); ++i) {
      if (IsTime(times[i])) continue;
      return absl::InvalidArgumentError(absl::StrCat("microbatch ", i / chunks, ": ",
                                                     backward ? "backward" : "forward", "[", i % chunks, "] ",
                                                     is_no_time(times[i])));
    }
  }
  return absl::OkStatus();
}

PipelineClock::PipelineClock(const PipelineProblem& problem, const PipelineClock* alike)
    : columns_(2 * problem.num_chunks()),
      shape_(alike == nullptr ? MakeShape(problem) : alike->shape_),
      kept_(shape_->ops.size(), 0),
      tried_(shape_->ops.size(), 0) {
  const uint32_t chunks = problem.num_chunks(), microbatches = problem.num_microbatches();
  times_.reserve(size_t{microbatches + 1} * columns_);
  for (size_t m = 0; m < microbatches; ++m) {
    AddMicrobatch({problem.forward.data() + m * chunks, chunks},
                  {problem.backward.data() + m * chunks, chunks});
  }
}

std::shared_ptr<const PipelineClock::Shape> PipelineClock::MakeShape(const PipelineProblem& problem) {
  const uint32_t chunks = problem.num_chunks(), microbatches = problem.num_microbatches();
  const uint32_t columns = 2 * chunks;
  auto shape = std::make_shared<Shape>();
  std::vector<std::vector<Slot>> slots;
  for (uint32_t s = 0; s < problem.stages; ++s) slots.push_back(SlotsOfStage(problem, s));
  // Takes one operation of every stage in turn if its input is done, which is about the order of time.
  std::vector<uint32_t> at(size_t{microbatches} * columns, 0), next(problem.stages, 0);
  const auto index_of = [&](const Slot& slot) -> uint32_t& {
    return at[size_t{slot.position} * columns + slot.chunk + (slot.backward ? chunks : 0)];
  };
  shape->ops.emplace_back();
  shape->last_op.assign(problem.stages, 0);
  shape->first_op.assign(microbatches, 0);
  for (bool any = true; any;) {
    any = false;
    for (uint32_t s = 0; s < problem.stages; ++s) {
      if (next[s] == slots[s].size()) continue;
      const Slot& slot = slots[s][next[s]];
      const std::optional<Slot> needed = Needed(problem, slot);
      if (needed && index_of(*needed) == 0) continue;
      Op op{.position = slot.position,
            .column = slot.chunk + (slot.backward ? chunks : 0),
            .on_stage = shape->last_op[s]};
      if (needed) op.needs = index_of(*needed);
      if (needed && needed->chunk % problem.stages != s) op.lag = problem.transfer;
      const uint32_t index = static_cast<uint32_t>(shape->ops.size());
      index_of(slot) = shape->last_op[s] = index;
      if (shape->first_op[slot.position] == 0) shape->first_op[slot.position] = index;
      if (s == 0) (slot.backward ? shape->backward_on_first : shape->forward_on_first).push_back(index);
      shape->ops.push_back(op);
      ++next[s];
      any = true;
    }
  }
  // An operation of a later position may come before one of an earlier position that changes with it.
  for (size_t k = shape->first_op.size(); k-- > 1;)
    shape->first_op[k - 1] = std::min(shape->first_op[k - 1], shape->first_op[k]);
  return shape;
}

uint32_t PipelineClock::AddMicrobatch(std::span<const double> forward, std::span<const double> backward) {
  times_.insert(times_.end(), forward.begin(), forward.end());
  times_.insert(times_.end(), backward.begin(), backward.end());
  return static_cast<uint32_t>(times_.size() / columns_ - 1);
}

double PipelineClock::Try(std::span<const uint32_t> order, uint32_t first_changed) {
  const uint32_t begin = first_changed < shape_->first_op.size() ? shape_->first_op[first_changed]
                                                                 : static_cast<uint32_t>(shape_->ops.size());
  if (same_until_ < begin) {
    std::copy(kept_.begin() + same_until_, kept_.begin() + begin, tried_.begin() + same_until_);
  }
  same_until_ = begin;
  double* const ends = tried_.data();
  const Op* const ops = shape_->ops.data();
  for (size_t i = begin, end = shape_->ops.size(); i < end; ++i) {
    const Op& op = ops[i];
    const double start = std::max(ends[op.on_stage], ends[op.needs] + op.lag);
    ends[i] = start + times_[size_t{order[op.position]} * columns_ + op.column];
  }
  double end = 0;
  for (uint32_t last : shape_->last_op) end = std::max(end, ends[last]);
  return end;
}

void PipelineClock::Keep() {
  std::copy(tried_.begin() + same_until_, tried_.end(), kept_.begin() + same_until_);
  same_until_ = static_cast<uint32_t>(shape_->ops.size());
}

double PipelineClock::StartOf(uint32_t op) const {
  return std::max(tried_[shape_->ops[op].on_stage], tried_[shape_->ops[op].needs] + shape_->ops[op].lag);
}

double PipelineClock::WaitAfterForward(uint32_t k) const {
  // The operations of a stage are in its order.
  const uint32_t next = *std::upper_bound(shape_->backward_on_first.begin(), shape_->backward_on_first.end(),
                                          shape_->forward_on_first[k]);
  return StartOf(next) - tried_[shape_->forward_on_first[k]];
}

std::vector<PipelineOp> PipelineClock::Ops(std::span<const uint32_t> order) const {
  const uint32_t chunks = columns_ / 2, stages = static_cast<uint32_t>(shape_->last_op.size());
  std::vector<PipelineOp> ops;
  for (uint32_t i = 1; i < shape_->ops.size(); ++i) {
    const uint32_t chunk = shape_->ops[i].column % chunks;
    ops.push_back({.stage = chunk % stages,
                   .chunk = chunk,
                   .microbatch = order[shape_->ops[i].position],
                   .backward = shape_->ops[i].column >= chunks,
                   .start = StartOf(i),
                   .end = tried_[i]});
  }
  std::stable_sort(ops.begin(), ops.end(),
                   [](const PipelineOp& a, const PipelineOp& b) { return a.stage < b.stage; });
  return ops;
}

PipelineTimeline SimulatePipeline(const PipelineProblem& problem, std::span<const uint32_t> order) {
  PipelineClock clock(problem);
  PipelineTimeline timeline{.iteration_time = clock.Try(order, 0)};
  timeline.busy.assign(problem.stages, 0);
  timeline.idle.assign(problem.stages, 0);
  timeline.ops = clock.Ops(order);
  for (const PipelineOp& op : timeline.ops) {
    const size_t time = size_t{op.microbatch} * problem.num_chunks() + op.chunk;
    timeline.busy[op.stage] += op.backward ? problem.backward[time] : problem.forward[time];
  }
  double idle = 0;
  for (uint32_t s = 0; s < problem.stages; ++s) {
    timeline.idle[s] = std::max(0.0, timeline.iteration_time - timeline.busy[s]);
    idle += timeline.idle[s];
  }
  if (timeline.iteration_time > 0) timeline.bubble_share = idle / (timeline.iteration_time * problem.stages);
  return timeline;
}

double PipelineBound(const PipelineProblem& problem) {
  const uint32_t microbatches = problem.num_microbatches(), chunks = problem.num_chunks();
  if (microbatches == 0) return 0;
  double bound = 0;
  for (uint32_t m = 0; m < microbatches; ++m) {
    double alone = problem.stages > 1 ? 2 * (chunks - 1) * problem.transfer : 0;
    for (size_t i = size_t{m} * chunks; i < size_t{m + 1} * chunks; ++i) {
      alone += problem.forward[i] + problem.backward[i];
    }
    bound = std::max(bound, alone);
  }
  for (uint32_t s = 0; s < problem.stages; ++s) bound = std::max(bound, StageBound(problem, s).Bound());
  return bound;
}

}  // namespace evenkeel::reorder
