// Our default: the best of several orders, among them the given one and DistTrain's, improved by local
// search.
//
// With few microbatches every order is tried. Otherwise the constructed orders are measured, and the best one
// is improved by moving one microbatch or exchanging two. A move that makes the iteration longer by at most a
// threshold is accepted; the threshold falls to zero, twice (threshold accepting: Dueck and Scheuer,
// "Threshold Accepting", Journal of Computational Physics 90, 1990), and the best order seen is returned.
// Effort is counted in orders tried and never in time. The search ends early if it reaches the lower bound.
#include <algorithm>
#include <utility>

#include "reorder/pipeline/microbatch_order.h"

namespace evenkeel::reorder {
namespace {

class Search {
 public:
  explicit Search(const OrderProblem& problem)
      : problem_(problem),
        pipeline_(problem.pipeline),
        microbatches_(pipeline_.num_microbatches()),
        bound_(PipelineBound(pipeline_) * (1 + 1e-12)),
        left_(problem.iterations),
        random_(problem.seed),
        clock_(problem.pipeline, problem.alike) {}

  std::vector<uint32_t> Run() {
    Offer(InOrder(microbatches_));
    Offer(DistTrainOrder(problem_));
    if (microbatches_ < 2) return best_;
    if (AllOrders() <= left_) {
      TryAll();
      return best_;
    }
    OfferConstructed();
    Anneal();
    return best_;
  }

 private:
  // Keeps the order if it is better than the best.
  void Offer(const std::vector<uint32_t>& order) {
    const double time = clock_.Try(order, 0);
    if (best_.empty() || time < best_time_) best_time_ = time, best_ = order;
  }

  // n!, or more than any number of iterations.
  uint64_t AllOrders() const {
    uint64_t all = 1;
    for (uint32_t m = 2; m <= microbatches_ && all <= UINT32_MAX; ++m) all *= m;
    return all;
  }

  void TryAll() {
    std::vector<uint32_t> order = InOrder(microbatches_), last;
    clock_.Try(order, 0);
    clock_.Keep();
    do {
      const auto changed = std::mismatch(order.begin(), order.end(), last.begin(), last.end()).first;
      const double time = clock_.Try(order, static_cast<uint32_t>(changed - order.begin()));
      clock_.Keep();
      if (time < best_time_) best_time_ = time, best_ = order;
      last = order;
    } while (best_time_ > bound_ && std::next_permutation(order.begin(), order.end()));
  }

  void OfferConstructed() {
    std::vector<double> size(microbatches_, 0);
    for (size_t i = 0; i < pipeline_.forward.size(); ++i) {
      size[i / pipeline_.num_chunks()] += pipeline_.forward[i] + pipeline_.backward[i];
    }
    std::vector<uint32_t> order = InOrder(microbatches_);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return size[a] < size[b]; });
    Offer(order);
    // Small microbatches at both ends, the largest in the middle.
    std::vector<uint32_t> hill;
    for (uint32_t k = 0; k < microbatches_; k += 2) hill.push_back(order[k]);
    for (uint32_t k = microbatches_ / 2; k-- > 0;) hill.push_back(order[2 * k + 1]);
    Offer(hill);
    std::reverse(order.begin(), order.end());
    Offer(order);
    OfferInserted(order);
  }

  // Inserts one microbatch after the other, largest first, where the iteration is shortest (Nawaz, Enscore
  // and Ham, Omega 11, 1983, for flow shops). Places not yet taken are empty.
  void OfferInserted(const std::vector<uint32_t>& largest_first) {
    const uint64_t trials = uint64_t{microbatches_} * (microbatches_ + 1) / 2;
    if (trials > left_ / 2) return;
    left_ -= static_cast<uint32_t>(trials);
    const std::vector<double> nothing(pipeline_.num_chunks(), 0);
    const uint32_t empty = clock_.AddMicrobatch(nothing, nothing);
    std::vector<uint32_t> order(microbatches_, empty);
    for (uint32_t placed = 0; placed < microbatches_; ++placed) {
      order[placed] = largest_first[placed];
      std::vector<uint32_t> best = order;
      double best_time = clock_.Try(order, 0);
      for (uint32_t at = placed; at > 0; --at) {
        std::swap(order[at - 1], order[at]);
        const double time = clock_.Try(order, 0);
        if (time < best_time) best_time = time, best = order;
      }
      order = std::move(best);
    }
    Offer(order);
  }

  // Makes a random move in `order`; returns the first position that changes.
  uint32_t Move(std::vector<uint32_t>& order) {
    uint32_t from = random_.Below(microbatches_), to = random_.Below(microbatches_ - 1);
    if (to >= from) ++to;
    if (random_.Below(2) == 0) {
      std::swap(order[from], order[to]);
    } else if (from < to) {
      std::rotate(order.begin() + from, order.begin() + from + 1, order.begin() + to + 1);
    } else {
      std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
    }
    return std::min(from, to);
  }

  // Twice from the best order on: first with a high threshold, then with a low one.
  void Anneal() {
    const uint32_t half = left_ / 2;
    Anneal(0.04, half);
    Anneal(0.01, left_ - half);
  }

  void Anneal(double threshold, uint32_t tries) {
    std::vector<uint32_t> order = best_, trial = order;
    double time = clock_.Try(order, 0);
    clock_.Keep();
    const double widest = threshold * best_time_;
    for (uint32_t left = tries; left > 0 && best_time_ > bound_; --left) {
      const uint32_t changed = Move(trial);
      const double trial_time = clock_.Try(trial, changed);
      if (trial_time > time + widest * left / tries) {
        trial = order;
        continue;
      }
      clock_.Keep();
      order = trial;
      time = trial_time;
      if (time < best_time_) best_time_ = time, best_ = order;
    }
  }

  const OrderProblem& problem_;
  const PipelineProblem& pipeline_;
  const uint32_t microbatches_;
  const double bound_;
  uint32_t left_;  // orders that may still be tried
  KeyedNumbers random_;
  PipelineClock clock_;
  std::vector<uint32_t> best_;
  double best_time_ = 0;
};

}  // namespace

std::vector<uint32_t> LocalSearchOrder(const OrderProblem& problem) { return Search(problem).Run(); }

}  // namespace evenkeel::reorder
