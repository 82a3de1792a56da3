// Node-wise rearrangement: OrchMLLM, algorithm 3. A balancer's batches may change places without changing any
// load; the permutation is sought that minimises the rows which the busiest source sends to other nodes.
//
// The paper solves an integer programme, x[batch, node], with a solver. Here: pairs of batch and node, most
// rows first; then exchanges of two batches, at first with the power sum of all egresses as the objective
// (it has a slope where the maximum has none), then of the busiest source's own batches. The bound that the
// gap is measured with is in EgressBound.
#include "reorder/node_wise.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "reorder/balance.h"

namespace evenkeel::reorder {
namespace {

constexpr uint32_t kNoNode = 0xffffffffu;
constexpr int kPasses = 12;              // over all batches, with exchanges by the power sum
constexpr size_t kPartners = 48;         // batches tried per batch and pass
constexpr uint32_t kDescentSteps = 512;  // exchanges for the busiest source

class Assignment {
 public:
  explicit Assignment(const NodeWiseProblem& problem)
      : problem_(problem),
        node_(problem.num_batches, kNoNode),
        on_node_(problem.slots.size()),
        sources_on_(problem.slots.size()),
        by_source_(problem.source_node.size() + 1, 0) {
    std::vector<NodeWiseProblem::Volume> by_batch = problem.volumes;
    std::stable_sort(by_batch.begin(), by_batch.end(),
                     [](const auto& a, const auto& b) { return a.batch < b.batch; });
    batch_volumes_ = std::move(by_batch);
    batch_begin_.assign(problem.num_batches + 1, 0);
    for (const auto& volume : problem.volumes) {
      ++batch_begin_[volume.batch + 1];
      ++by_source_[volume.source + 1];
    }
    std::partial_sum(batch_begin_.begin(), batch_begin_.end(), batch_begin_.begin());
    std::partial_sum(by_source_.begin(), by_source_.end(), by_source_.begin());
    for (uint32_t s = 0; s < problem.source_node.size(); ++s)
      sources_on_[problem.source_node[s]].push_back(s);
    egress_.assign(problem.source_node.size(), 0);
    for (const auto& volume : problem.volumes) egress_[volume.source] += static_cast<Load>(volume.rows);
    scale_ = 1;
    for (Load rows : egress_) scale_ = std::max(scale_, static_cast<double>(rows));
  }

  std::vector<uint32_t> Run() {
    MostRowsFirst();
    for (int pass = 0; pass < kPasses; ++pass) {
      if (!ImprovePowerSum(pass)) break;
    }
    for (uint32_t step = 0; step < kDescentSteps; ++step) {
      if (!RelieveBusiest()) break;
    }
    return node_;
  }

 private:
  // Every pair of batch and node, most rows first, as long as the node has a slot; then what is left in
  // order.
  void MostRowsFirst() {
    std::vector<std::pair<Load, std::pair<uint32_t, uint32_t>>> pairs;  // (-rows, (batch, node))
    std::vector<Load> rows(problem_.slots.size(), 0);
    std::vector<uint32_t> touched;
    for (uint32_t b = 0; b < problem_.num_batches; ++b) {
      touched.clear();
      for (size_t i = batch_begin_[b]; i < batch_begin_[b + 1]; ++i) {
        const uint32_t n = problem_.source_node[batch_volumes_[i].source];
        if (rows[n] == 0) touched.push_back(n);
        rows[n] -= static_cast<Load>(batch_volumes_[i].rows);
      }
      for (uint32_t n : touched) pairs.push_back({std::exchange(rows[n], 0), {b, n}});
    }
    std::sort(pairs.begin(), pairs.end());
    for (const auto& [key, pair] : pairs) {
      const auto [b, n] = pair;
      if (node_[b] == kNoNode && on_node_[n].size() < problem_.slots[n]) Put(b, n);
    }
    for (uint32_t b = 0, n = 0; b < problem_.num_batches; ++b) {
      if (node_[b] != kNoNode) continue;
      while (on_node_[n].size() >= problem_.slots[n]) ++n;
      Put(b, n);
    }
  }

  void Put(uint32_t batch, uint32_t n) {
    node_[batch] = n;
    on_node_[n].push_back(batch);
    AddKept(batch, n, -1);
  }

  // Adds sign * rows of the batch to the egress of the node's sources.
  void AddKept(uint32_t batch, uint32_t n, Load sign) {
    for (size_t i = batch_begin_[batch]; i < batch_begin_[batch + 1]; ++i) {
      const auto& volume = batch_volumes_[i];
      if (problem_.source_node[volume.source] == n)
        egress_[volume.source] += sign * static_cast<Load>(volume.rows);
    }
  }

  void Exchange(uint32_t a, uint32_t b) {
    const uint32_t na = node_[a], nb = node_[b];
    AddKept(a, na, 1);
    AddKept(b, nb, 1);
    AddKept(a, nb, -1);
    AddKept(b, na, -1);
    *std::find(on_node_[na].begin(), on_node_[na].end(), a) = b;
    *std::find(on_node_[nb].begin(), on_node_[nb].end(), b) = a;
    node_[a] = nb;
    node_[b] = na;
  }

  double PowerSum(uint32_t n) const {
    double sum = 0;
    for (uint32_t s : sources_on_[n]) {
      double x = static_cast<double>(egress_[s]) / scale_;
      x *= x, x *= x, x *= x;  // 8th power
      sum += x * x * x * x;    // 32nd
    }
    return sum;
  }
  Load LargestOn(uint32_t n) const {
    Load largest = 0;
    for (uint32_t s : sources_on_[n]) largest = std::max(largest, egress_[s]);
    return largest;
  }

  bool ImprovePowerSum(int pass) {
    bool improved = false;
    const size_t batches = problem_.num_batches;
    const bool all = batches <= 2 * kPartners;
    for (uint32_t a = 0; a < batches; ++a) {
      const size_t partners = all ? batches : kPartners;
      for (size_t k = 0; k < partners; ++k) {
        // Another sample of partners in every pass, spread over all batches.
        const uint32_t b = static_cast<uint32_t>(
            all ? k
                : (a + 1 +
                   (k * kPasses + static_cast<size_t>(pass)) * (batches / (kPartners * kPasses) + 1)) %
                      batches);
        const uint32_t na = node_[a], nb = node_[b];
        if (na == nb) continue;
        const double before = PowerSum(na) + PowerSum(nb);
        Exchange(a, b);
        if (PowerSum(na) + PowerSum(nb) < before * (1 - 1e-9)) {
          improved = true;
        } else {
          Exchange(a, b);
        }
      }
    }
    return improved;
  }

  // Brings a batch of the busiest source to its node for one that leaves, so that all whom it touches then
  // have less than the busiest had.
  bool RelieveBusiest() {
    const uint32_t s =
        static_cast<uint32_t>(std::max_element(egress_.begin(), egress_.end()) - egress_.begin());
    const uint32_t home = problem_.source_node[s];
    const Load worst = egress_[s];
    Load best = worst;
    std::pair<uint32_t, uint32_t> exchange{kNoNode, kNoNode};
    for (size_t i = by_source_[s]; i < by_source_[s + 1]; ++i) {
      const uint32_t a = problem_.volumes[i].batch;
      const uint32_t away = node_[a];
      if (away == home) continue;
      const std::vector<uint32_t> here = on_node_[home];
      for (uint32_t b : here) {
        Exchange(a, b);
        const Load largest = std::max(LargestOn(home), LargestOn(away));
        if (largest < best) best = largest, exchange = {a, b};
        Exchange(a, b);
      }
    }
    if (exchange.first == kNoNode) return false;
    Exchange(exchange.first, exchange.second);
    return true;
  }

  const NodeWiseProblem& problem_;
  double scale_ = 1;
  std::vector<uint32_t> node_;                          // [batches]
  std::vector<std::vector<uint32_t>> on_node_;          // batches of every node
  std::vector<std::vector<uint32_t>> sources_on_;       // sources of every node
  std::vector<size_t> by_source_;                       // [sources + 1] into problem_.volumes
  std::vector<NodeWiseProblem::Volume> batch_volumes_;  // sorted by batch
  std::vector<size_t> batch_begin_;                     // [batches + 1]
  std::vector<Load> egress_;                            // [sources]
};

class NodeWiseBalancer final : public Balancer {
 public:
  std::string_view name() const override { return "node_wise"; }

  std::vector<uint32_t> Assign(const BalanceProblem& problem) const override {
    const Balancer& base = problem.padded_attention                ? GreedyPaddedAttention()
                           : problem.batching == Batching::kPadded ? GreedyPadded()
                                                                   : GreedyPacked();
    return PermuteNodeWise(problem, base.Assign(problem));
  }
};

}  // namespace

std::vector<uint32_t> AssignBatchesToNodes(const NodeWiseProblem& problem) {
  return Assignment(problem).Run();
}

uint64_t LargestEgress(const NodeWiseProblem& problem, const std::vector<uint32_t>& node) {
  std::vector<uint64_t> egress(problem.source_node.size(), 0);
  for (const auto& volume : problem.volumes) {
    if (node[volume.batch] != problem.source_node[volume.source]) egress[volume.source] += volume.rows;
  }
  return egress.empty() ? 0 : *std::max_element(egress.begin(), egress.end());
}

uint64_t EgressBound(const NodeWiseProblem& problem) {
  const size_t nodes = problem.slots.size();
  const auto sum_of_largest = [](std::vector<uint64_t>& rows, size_t count) {
    std::sort(rows.rbegin(), rows.rend());
    return std::accumulate(rows.begin(), rows.begin() + static_cast<ptrdiff_t>(std::min(count, rows.size())),
                           uint64_t{0});
  };
  uint64_t bound = 0, total = 0;
  std::vector<std::vector<std::pair<uint32_t, uint64_t>>> of_node(nodes);  // (batch, rows)
  std::vector<uint64_t> total_of_node(nodes, 0), sources_of_node(nodes, 0);
  for (uint32_t n : problem.source_node) ++sources_of_node[n];
  for (size_t i = 0; i < problem.volumes.size();) {
    const uint32_t source = problem.volumes[i].source, n = problem.source_node[source];
    std::vector<uint64_t> rows;
    uint64_t sum = 0;
    for (; i < problem.volumes.size() && problem.volumes[i].source == source; ++i) {
      rows.push_back(problem.volumes[i].rows);
      sum += problem.volumes[i].rows;
      of_node[n].emplace_back(problem.volumes[i].batch, problem.volumes[i].rows);
    }
    bound = std::max(bound, sum - sum_of_largest(rows, problem.slots[n]));
    total_of_node[n] += sum;
    total += sum;
  }
  // The sources of a node together, and all: the mean is at most the largest. A batch is kept on one node.
  std::vector<uint64_t> best_of_batch(problem.num_batches, 0);
  uint64_t kept = 0;
  for (size_t n = 0; n < nodes; ++n) {
    std::sort(of_node[n].begin(), of_node[n].end());
    std::vector<uint64_t> rows;
    for (size_t i = 0; i < of_node[n].size();) {
      const uint32_t batch = of_node[n][i].first;
      uint64_t sum = 0;
      for (; i < of_node[n].size() && of_node[n][i].first == batch; ++i) sum += of_node[n][i].second;
      rows.push_back(sum);
      best_of_batch[batch] = std::max(best_of_batch[batch], sum);
    }
    const uint64_t keeps = sum_of_largest(rows, problem.slots[n]);
    kept += keeps;
    const uint64_t sources = std::max<uint64_t>(1, sources_of_node[n]);
    bound = std::max(bound, (total_of_node[n] - keeps + sources - 1) / sources);
  }
  kept = std::min(kept, std::accumulate(best_of_batch.begin(), best_of_batch.end(), uint64_t{0}));
  const uint64_t sources = std::max<uint64_t>(1, problem.source_node.size());
  return std::max(bound, (total - kept + sources - 1) / sources);
}

std::vector<uint32_t> PermuteNodeWise(const BalanceProblem& problem, const std::vector<uint32_t>& rank) {
  if (!problem.items_have_homes || problem.rows.size() != rank.size()) return rank;
  const PhaseRanks& ranks = *problem.ranks;
  NodeWiseProblem batches{.source_node = ranks.node, .num_batches = ranks.size()};
  for (uint32_t n = 0; n + 1 < ranks.on_node_begin.size(); ++n) {
    batches.slots.push_back(static_cast<uint32_t>(ranks.OnNode(n).size()));
  }
  std::vector<std::pair<uint64_t, uint64_t>> pairs;  // (source * ranks + batch, rows)
  for (size_t i = 0; i < rank.size(); ++i) {
    if (problem.home_node[i] == kNowhere || problem.rows[i] == 0) continue;  // goes to another node anyway
    pairs.emplace_back(uint64_t{problem.beside[i]} * ranks.size() + rank[i], problem.rows[i]);
  }
  std::sort(pairs.begin(), pairs.end());
  for (size_t i = 0; i < pairs.size();) {
    const uint64_t key = pairs[i].first;
    uint64_t rows = 0;
    for (; i < pairs.size() && pairs[i].first == key; ++i) rows += pairs[i].second;
    batches.volumes.push_back(
        {static_cast<uint32_t>(key / ranks.size()), static_cast<uint32_t>(key % ranks.size()), rows});
  }
  const std::vector<uint32_t> node = AssignBatchesToNodes(batches);
  // Within a node in ascending order, one batch a rank.
  std::vector<uint32_t> next(ranks.on_node_begin.begin(), ranks.on_node_begin.end());
  std::vector<uint32_t> rank_of_batch(ranks.size());
  for (uint32_t b = 0; b < ranks.size(); ++b) rank_of_batch[b] = ranks.on_node[next[node[b]]++];
  std::vector<uint32_t> moved(rank.size());
  for (size_t i = 0; i < rank.size(); ++i) moved[i] = rank_of_batch[rank[i]];
  return moved;
}

const Balancer& NodeWise() {
  static const NodeWiseBalancer balancer;
  return balancer;
}

}  // namespace evenkeel::reorder
