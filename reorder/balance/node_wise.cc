// Node-wise rearrangement: OrchMLLM, algorithm 3. A balancer's batches can be permuted over ranks without
// changing any load; this looks for the permutation that minimizes the rows which the busiest source sends to
// other nodes.
//
// The paper solves an integer programme, x[batch, node], with a solver. Here: first, pairs of batch and node
// are assigned by the most rows. Then batches are exchanged, at first with the power sum of all egresses as
// the objective (it has a slope where the maximum has none), then those of the busiest source. This is
// repeated from the best assignment so far with a few random exchanges, as long as effort is left. An
// exchange changes the egress of the sources of two nodes only, so it is evaluated without being made.
// EgressBound is the lower bound for the optimality gap.
#include "reorder/balance/node_wise.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "reorder/balance/balance.h"
#include "reorder/keyed_shuffle.h"

namespace evenkeel::reorder {
namespace {

constexpr uint32_t kNoNode = 0xffffffffu;
constexpr int kPasses = 12;              // passes over all batches with exchanges by the power sum
constexpr size_t kNodesTried = 8;        // candidate nodes per batch: those with most of its rows
constexpr uint64_t kMaxTried = 1 << 18;  // exchanges evaluated in all passes together
constexpr uint32_t kDescentSteps = 512;  // exchanges for the busiest source, per round
constexpr int kRounds = 32;              // restarts from the best assignment with random exchanges
constexpr int kShaken = 4;               // random exchanges per restart

class Assignment {
 public:
  explicit Assignment(const NodeWiseProblem& problem)
      : problem_(problem),
        node_(problem.num_batches, kNoNode),
        on_node_(problem.slots.size()),
        volumes_(problem.volumes),
        egress_(problem.source_node.size(), 0),
        change_(problem.source_node.size(), 0) {
    for (const auto& volume : problem.volumes) egress_[volume.source] += static_cast<Load>(volume.rows);
    GroupByBatchAndNode();
  }

  std::vector<uint32_t> Run() {
    MostRowsFirst();
    uint64_t left = kMaxTried;
    Improve(left);
    std::vector<uint32_t> best = node_;
    Load least = Busiest();
    KeyedNumbers numbers(problem_.num_batches);
    for (int round = 0; round < kRounds && left > 0 && least > 0; ++round) {
      Shake(numbers);
      Improve(left);
      if (Busiest() <= least) {
        least = Busiest();
        best = node_;
      } else {
        Restore(best);
      }
    }
    return best;
  }

 private:
  // The volumes of one batch from the sources of one node.
  struct Group {
    uint32_t node;
    uint32_t begin;  // into volumes_
    uint32_t end;
    Load rows;
  };

  Load Busiest() const { return egress_.empty() ? 0 : *std::max_element(egress_.begin(), egress_.end()); }

  void Improve(uint64_t& left) {
    scale_ = static_cast<double>(std::max<Load>(1, Busiest()));
    for (int pass = 0; pass < kPasses && left > 0; ++pass) {
      if (!ImprovePowerSum(left)) break;
    }
    for (uint32_t step = 0; step < kDescentSteps; ++step) {
      if (!RelieveBusiest()) break;
    }
  }

  // Makes a few random exchanges, to leave a local optimum.
  void Shake(KeyedNumbers& numbers) {
    for (int i = 0; i < kShaken; ++i) {
      const uint32_t a = numbers.Below(problem_.num_batches), b = numbers.Below(problem_.num_batches);
      if (node_[a] != node_[b]) Exchange(a, b);
    }
  }

  void Restore(const std::vector<uint32_t>& node) {
    for (std::vector<uint32_t>& batches : on_node_) batches.clear();
    for (uint32_t b = 0; b < node.size(); ++b) AddKept(b, node_[b], 1);
    for (uint32_t b = 0; b < node.size(); ++b) Put(b, node[b]);
  }

  void GroupByBatchAndNode() {
    const auto place = [&](const NodeWiseProblem::Volume& volume) {
      return std::tuple(volume.batch, problem_.source_node[volume.source], volume.source);
    };
    std::sort(volumes_.begin(), volumes_.end(),
              [&](const auto& x, const auto& y) { return place(x) < place(y); });
    uint32_t i = 0;
    for (uint32_t b = 0; b < problem_.num_batches; ++b) {
      for (; i < volumes_.size() && volumes_[i].batch == b; ++i) {
        const uint32_t n = problem_.source_node[volumes_[i].source];
        if (groups_.size() == group_begin_.back() || groups_.back().node != n)
          groups_.push_back({n, i, i, 0});
        groups_.back().end = i + 1;
        groups_.back().rows += static_cast<Load>(volumes_[i].rows);
      }
      group_begin_.push_back(static_cast<uint32_t>(groups_.size()));
    }
  }

  // Assigns pairs of batch and node by descending rows while the node has a slot; then the remaining batches
  // in order.
  void MostRowsFirst() {
    std::vector<Load> rows(groups_.size());
    std::vector<uint32_t> batch(groups_.size());
    for (uint32_t b = 0; b < problem_.num_batches; ++b) {
      for (uint32_t g = group_begin_[b]; g < group_begin_[b + 1]; ++g) {
        rows[g] = groups_[g].rows;
        batch[g] = b;
      }
    }
    for (uint32_t g : HeaviestFirst(rows)) {
      const uint32_t b = batch[g], n = groups_[g].node;
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
    Apply();
  }

  // Adds sign * rows of the batch to the pending changes of the egress of the node's sources.
  void AddKept(uint32_t batch, uint32_t n, Load sign) {
    const auto begin = groups_.begin() + group_begin_[batch], end = groups_.begin() + group_begin_[batch + 1];
    const auto group =
        std::lower_bound(begin, end, n, [](const Group& g, uint32_t node) { return g.node < node; });
    if (group == end || group->node != n) return;
    for (uint32_t i = group->begin; i < group->end; ++i) {
      const uint32_t source = volumes_[i].source;
      if (change_[source] == 0) changed_.push_back(source);
      change_[source] += sign * static_cast<Load>(volumes_[i].rows);
    }
  }
  void NoteExchange(uint32_t a, uint32_t b) {
    AddKept(a, node_[a], 1);
    AddKept(b, node_[b], 1);
    AddKept(a, node_[b], -1);
    AddKept(b, node_[a], -1);
  }
  void Forget() {
    for (uint32_t source : changed_) change_[source] = 0;
    changed_.clear();
  }
  void Apply() {
    for (uint32_t source : changed_) egress_[source] += std::exchange(change_[source], 0);
    changed_.clear();
  }

  void Exchange(uint32_t a, uint32_t b) {
    NoteExchange(a, b);
    Apply();
    *std::find(on_node_[node_[a]].begin(), on_node_[node_[a]].end(), a) = b;
    *std::find(on_node_[node_[b]].begin(), on_node_[node_[b]].end(), b) = a;
    std::swap(node_[a], node_[b]);
  }

  // x^32 of the egress relative to the busiest one: large enough to approximate the maximum, and still
  // smooth.
  double Power(Load egress) const {
    double x = static_cast<double>(egress) / scale_;
    x *= x, x *= x, x *= x;  // 8th power
    return x * x * x * x;    // 32nd
  }

  // How much an exchange would reduce the power sum.
  double Gain(uint32_t a, uint32_t b) {
    NoteExchange(a, b);
    double gain = 0;
    for (uint32_t source : changed_) {
      // A source may be noted twice; its change counts once.
      const Load change = std::exchange(change_[source], 0);
      gain += Power(egress_[source]) - Power(egress_[source] + change);
    }
    changed_.clear();
    return gain;
  }

  // For every batch, makes the best exchange with a batch on one of the nodes that most of its rows come
  // from.
  bool ImprovePowerSum(uint64_t& left) {
    bool improved = false;
    std::vector<Group> nodes;
    for (uint32_t a = 0; a < problem_.num_batches; ++a) {
      nodes.assign(groups_.begin() + group_begin_[a], groups_.begin() + group_begin_[a + 1]);
      const size_t count = std::min(kNodesTried, nodes.size());
      std::partial_sort(nodes.begin(), nodes.begin() + static_cast<ptrdiff_t>(count), nodes.end(),
                        [](const Group& x, const Group& y) {
                          return std::pair(y.rows, x.node) < std::pair(x.rows, y.node);
                        });
      double best = 1e-12;
      uint32_t partner = kNoNode;
      for (size_t k = 0; k < count; ++k) {
        if (nodes[k].node == node_[a]) continue;
        for (uint32_t b : on_node_[nodes[k].node]) {
          if (left == 0) break;
          --left;
          const double gain = Gain(a, b);
          if (gain > best) best = gain, partner = b;
        }
      }
      if (partner == kNoNode) continue;
      Exchange(a, partner);
      improved = true;
    }
    return improved;
  }

  // One step down for the maximum itself: exchanges a batch of the busiest source for one on its node, such
  // that all affected sources then send less than the busiest one did.
  bool RelieveBusiest() {
    const uint32_t s =
        static_cast<uint32_t>(std::max_element(egress_.begin(), egress_.end()) - egress_.begin());
    const uint32_t home = problem_.source_node[s];
    Load best = egress_[s];
    std::pair<uint32_t, uint32_t> exchange{kNoNode, kNoNode};
    const auto [begin, end] = std::equal_range(
        problem_.volumes.begin(), problem_.volumes.end(), NodeWiseProblem::Volume{.source = s},
        [](const auto& x, const auto& y) { return x.source < y.source; });
    for (auto volume = begin; volume != end; ++volume) {
      const uint32_t a = volume->batch;
      if (node_[a] == home) continue;
      for (uint32_t b : on_node_[home]) {
        NoteExchange(a, b);
        Load largest = egress_[s] + change_[s];
        for (uint32_t source : changed_) largest = std::max(largest, egress_[source] + change_[source]);
        Forget();
        if (largest < best) best = largest, exchange = {a, b};
      }
    }
    if (exchange.first == kNoNode) return false;
    Exchange(exchange.first, exchange.second);
    return true;
  }

  const NodeWiseProblem& problem_;
  double scale_ = 1;
  std::vector<uint32_t> node_;                    // [batches]
  std::vector<std::vector<uint32_t>> on_node_;    // batches of every node
  std::vector<NodeWiseProblem::Volume> volumes_;  // by batch, then node
  std::vector<Group> groups_;                     // by batch, then node
  std::vector<uint32_t> group_begin_{0};          // [batches + 1]
  std::vector<Load> egress_;                      // [sources]
  std::vector<Load> change_;                      // [sources] pending changes of the egress
  std::vector<uint32_t> changed_;                 // sources with a pending change
};

// Appends the rows of every pair of home and batch, sorted by home and then batch.
void AddVolumes(const BalanceProblem& problem, const std::vector<uint32_t>& rank,
                std::vector<NodeWiseProblem::Volume>& volumes) {
  std::vector<std::vector<uint32_t>> of_home(problem.ranks->size());  // items
  for (uint32_t i = 0; i < rank.size(); ++i) {
    if (problem.HomeNode(i) == kNowhere || problem.rows[i] == 0) continue;  // goes to another node anyway
    of_home[problem.DefaultRank(i)].push_back(i);
  }
  std::vector<uint64_t> rows(problem.ranks->size(), 0);
  std::vector<uint32_t> batches;
  for (uint32_t home = 0; home < of_home.size(); ++home) {
    batches.clear();
    for (uint32_t i : of_home[home]) {
      if (rows[rank[i]] == 0) batches.push_back(rank[i]);
      rows[rank[i]] += problem.rows[i];
    }
    std::sort(batches.begin(), batches.end());
    for (uint32_t b : batches) volumes.push_back({home, b, std::exchange(rows[b], 0)});
  }
}

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
  // Bounds by means, over the sources of a node and over all sources: the maximum is at least the mean. A
  // batch is kept on one node.
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
  if (!problem.ItemsHaveHomes() || problem.rows.size() != rank.size()) return rank;
  const PhaseRanks& ranks = *problem.ranks;
  NodeWiseProblem batches{.source_node = ranks.node, .num_batches = ranks.size()};
  for (uint32_t n = 0; n + 1 < ranks.on_node_begin.size(); ++n) {
    batches.slots.push_back(static_cast<uint32_t>(ranks.OnNode(n).size()));
  }
  AddVolumes(problem, rank, batches.volumes);
  const std::vector<uint32_t> node = AssignBatchesToNodes(batches);
  // Within a node in ascending order, one batch a rank.
  std::vector<uint32_t> next(ranks.on_node_begin.begin(), ranks.on_node_begin.end());
  std::vector<uint32_t> rank_of_batch(ranks.size());
  for (uint32_t b = 0; b < ranks.size(); ++b) rank_of_batch[b] = ranks.on_node[next[node[b]]++];
  std::vector<uint32_t> moved(rank.size());
  for (size_t i = 0; i < rank.size(); ++i) moved[i] = rank_of_batch[rank[i]];
  return moved;
}

std::vector<uint32_t> NodeWise(const BalanceProblem& problem) {
  const auto batches = problem.padded_attention                ? GreedyPaddedAttention
                       : problem.batching == Batching::kPadded ? GreedyPadded
                                                               : GreedyPacked;
  return PermuteNodeWise(problem, batches(problem));
}

}  // namespace evenkeel::reorder
