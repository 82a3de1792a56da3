// Forms the rounds of Megatron-Core's hybrid context parallelism, as hybrid_groups.h describes them.
#include "advise/hybrid_groups.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace evenkeel::advise {
namespace {

constexpr double kSlack = 0.05;        // of the busiest rank's work, for ranks to count as level
constexpr double kBucketExcess = 1.1;  // a bucket may have this much of its share

class Rounds {
 public:
  Rounds(std::span<const uint32_t> tokens, uint32_t ranks, double tokens_per_rank)
      : tokens_(tokens), ranks_(ranks), tokens_per_rank_(tokens_per_rank) {}

  std::vector<HybridRound> Run() {
    std::vector<uint32_t> left(tokens_.size());
    std::iota(left.begin(), left.end(), 0u);
    std::stable_sort(left.begin(), left.end(),
                     [&](uint32_t a, uint32_t b) { return tokens_[a] > tokens_[b]; });
    std::vector<HybridRound> rounds;
    while (!left.empty()) {
      groups_.clear();
      work_.clear();
      free_from_ = 0;
      left = Assign(left);
      TrimBusiest(left);
      while (DoubleASmallest()) continue;
      rounds.push_back(groups_);
    }
    return rounds;
  }

 private:
  using Bucket = std::deque<uint32_t>;

  uint32_t DegreeOf(uint32_t sequence) const { return HybridDegree(tokens_[sequence], tokens_per_rank_); }
  double WorkOf(uint32_t sequence) const {
    const double n = tokens_[sequence];
    return n * n / DegreeOf(sequence);
  }
  uint32_t Free() const { return ranks_ - free_from_; }

  // A bucket closes when the next sequence would exceed its share, or when each of the others is needed to open one more.
  std::vector<Bucket> BucketsOf(const std::vector<uint32_t>& sequences) const {
    std::set<uint32_t> degrees;
    double total = 0;
    for (uint32_t s : sequences) degrees.insert(DegreeOf(s)), total += WorkOf(s);
    const double share = total / static_cast<double>(degrees.size());
    std::vector<Bucket> buckets(1);
    int64_t to_close = static_cast<int64_t>(degrees.size());
    double work = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const double of_next = WorkOf(sequences[i]);
      const int64_t closed = static_cast<int64_t>(buckets.size()) - 1;
      const bool is_short = static_cast<int64_t>(sequences.size() - i) <= to_close - closed;
      if (!buckets.back().empty() && (work + of_next > kBucketExcess * share || is_short)) {
        buckets.emplace_back();
        work = 0;
        --to_close;
      }
      buckets.back().push_back(sequences[i]);
      work += of_next;
    }
    return buckets;
  }

  // The group of this degree with the least work.
  std::optional<size_t> LightestOf(uint32_t degree) const {
    std::optional<size_t> lightest;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].degree == degree && (!lightest || work_[g] < work_[*lightest])) lightest = g;
    }
    return lightest;
  }

  // The first bucket whose head has room; nullopt: none.
  std::optional<size_t> BucketWithRoom(const std::vector<Bucket>& buckets) const {
    for (size_t b = 0; b < buckets.size(); ++b) {
      if (buckets[b].empty()) continue;
      const uint32_t degree = DegreeOf(buckets[b].front());
      if (Free() >= degree || LightestOf(degree).has_value()) return b;
    }
    return std::nullopt;
  }

  // Assigns sequences until the round is level or full. Returns those that are left.
  std::vector<uint32_t> Assign(const std::vector<uint32_t>& sequences) {
    std::vector<Bucket> buckets = BucketsOf(sequences);
    uint32_t of_first = 0;
    bool may_end = false;
    for (auto b = BucketWithRoom(buckets); b.has_value(); b = BucketWithRoom(buckets)) {
      const uint32_t sequence = buckets[*b].front(), degree = DegreeOf(sequence);
      buckets[*b].pop_front();
      std::optional<size_t> group = LightestOf(degree);
      if (Free() >= degree && (!group || work_[*group] > 0)) {
        group = groups_.size();
        groups_.push_back({.first_rank = free_from_, .degree = degree});
        work_.push_back(0);
        free_from_ += degree;
      }
      groups_[*group].sequences.push_back(sequence);
      work_[*group] += WorkOf(sequence);
      if (of_first == 0) of_first = degree;
      may_end |= degree < of_first;
      if (may_end && Busiest() - Idlest() <= kSlack * Busiest()) break;
    }
    std::vector<uint32_t> left;
    for (const Bucket& bucket : buckets) left.insert(left.end(), bucket.begin(), bucket.end());
    return left;
  }

  double Busiest() const { return *std::max_element(work_.begin(), work_.end()); }
  double Idlest() const { return Free() > 0 ? 0 : *std::min_element(work_.begin(), work_.end()); }

  void TrimBusiest(std::vector<uint32_t>& left) {
    for (;;) {
      const double slack = Busiest() - Idlest();
      if (slack <= kSlack * Busiest() || Idlest() == 0) return;
      const auto busiest = std::max_element(work_.begin(), work_.end());
      HybridGroup& group = groups_[static_cast<size_t>(busiest - work_.begin())];
      if (group.sequences.size() < 2) return;
      const double of_last = WorkOf(group.sequences.back());
      *busiest -= of_last;
      if (Busiest() - Idlest() >= slack) {
        *busiest += of_last;
        return;
      }
      left.push_back(group.sequences.back());
      group.sequences.pop_back();
    }
  }

  // False if there are no free ranks, or too few.
  bool DoubleASmallest() {
    if (Free() == 0) return false;
    const auto smallest = std::min_element(groups_.begin(), groups_.end(),
                                           [](const auto& a, const auto& b) { return a.degree < b.degree; });
    const uint32_t more = std::min(smallest->degree, ranks_ - smallest->degree);
    if (more == 0 || more > Free()) return false;
    smallest->degree += more;
    for (auto later = smallest + 1; later != groups_.end(); ++later) later->first_rank += more;
    free_from_ += more;
    return true;
  }

  const std::span<const uint32_t> tokens_;
  const uint32_t ranks_;
  const double tokens_per_rank_;
  std::vector<HybridGroup> groups_;  // of the round, by their ranks
  std::vector<double> work_;         // [groups] of each of its ranks
  uint32_t free_from_ = 0;           // the ranks from here on have no group
};

}  // namespace

uint32_t HybridDegree(uint32_t tokens, double tokens_per_rank) {
  for (uint32_t degree = 1; degree <= kMaxHybridRanks; degree *= 2) {
    if (degree * tokens_per_rank >= tokens) return degree;
  }
  return 0;
}

std::vector<HybridRound> HybridRounds(std::span<const uint32_t> tokens, uint32_t ranks,
                                      double tokens_per_rank) {
  return Rounds(tokens, ranks, tokens_per_rank).Run();
}

}  // namespace evenkeel::advise
