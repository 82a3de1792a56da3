#include "reorder/layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/balance.h"

namespace evenkeel::reorder {
namespace {

absl::string_view NameOf(const PhaseSpec& spec) {
  std::string_view name = PhaseName(spec.phase);
  return {name.data(), name.size()};
}

absl::Status CheckPhase(const PhaseSpec& spec) {
  if (spec.ranks.empty())
    return absl::InvalidArgumentError(absl::StrCat("phase ", NameOf(spec), " has no ranks"));
  std::vector<uint32_t> sorted = spec.ranks;
  if (!std::is_sorted(sorted.begin(), sorted.end())) std::sort(sorted.begin(), sorted.end());
  auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("phase ", NameOf(spec), " names global rank ", *twice, " twice"));
  }
  if (FindBalancer(spec.algorithm) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("phase ", NameOf(spec), ": unknown algorithm '",
                                                   spec.algorithm, "'; known are ", AlgorithmNames()));
  }
  return absl::OkStatus();
}

PhaseRanks MakeRanks(const Job& job, const PhaseSpec& spec, const std::vector<uint32_t>& nodes) {
  PhaseRanks ranks;
  ranks.global = spec.ranks;
  ranks.on_node_begin.assign(nodes.size() + 1, 0);
  ranks.node.reserve(ranks.size());
  uint32_t at = 0;  // most ranks are on the node of the one before
  for (uint32_t global : ranks.global) {
    const uint32_t node = job.NodeOf(global);
    if (nodes[at] != node) {
      at = static_cast<uint32_t>(std::lower_bound(nodes.begin(), nodes.end(), node) - nodes.begin());
    }
    ranks.node.push_back(at);
    ++ranks.on_node_begin[at + 1];
  }
  for (size_t n = 0; n < nodes.size(); ++n) ranks.on_node_begin[n + 1] += ranks.on_node_begin[n];
  ranks.on_node.resize(ranks.size());
  std::vector<uint32_t> next(ranks.on_node_begin.begin(), ranks.on_node_begin.end() - 1);
  for (uint32_t r = 0; r < ranks.size(); ++r) ranks.on_node[next[ranks.node[r]]++] = r;
  return ranks;
}

bool InView(const PhaseRanks& llm, const PhaseRanks& encoder, uint32_t num_nodes) {
  // ratio of ranks, compared by cross multiplication with that of the first node that has llm ranks
  uint64_t first_llm = 0, first_encoder = 0;
  for (uint32_t n = 0; n < num_nodes; ++n) {
    const uint64_t l = llm.OnNode(n).size(), e = encoder.OnNode(n).size();
    if (l == 0 && e == 0) continue;
    if (l == 0 || e == 0) return false;
    if (first_llm == 0) first_llm = l, first_encoder = e;
    if (l * first_encoder != e * first_llm) return false;
  }
  return true;
}

Neighbours MakeNeighbours(const PhaseRanks& llm, const PhaseRanks& encoder, uint32_t num_nodes) {
  std::vector<std::pair<uint32_t, uint32_t>> by_global;  // (global, rank)
  by_global.reserve(encoder.size());
  for (uint32_t r = 0; r < encoder.size(); ++r) by_global.emplace_back(encoder.global[r], r);
  if (!std::is_sorted(by_global.begin(), by_global.end())) std::sort(by_global.begin(), by_global.end());
  std::vector<uint32_t> dealt(num_nodes, 0);
  Neighbours neighbours;
  for (auto* column : {&neighbours.rank, &neighbours.node, &neighbours.beside}) column->reserve(llm.size());
  auto it = by_global.begin();  // where ranks ascend without gaps, each is behind the last
  for (uint32_t r = 0; r < llm.size(); ++r) {
    const uint32_t node = llm.node[r];
    const auto there = encoder.OnNode(node);
    if (it != by_global.end() && it->first < llm.global[r]) ++it;
    if (it == by_global.end() || it->first != llm.global[r]) {
      it = std::lower_bound(by_global.begin(), by_global.end(), std::make_pair(llm.global[r], 0u));
    }
    const bool same = it != by_global.end() && it->first == llm.global[r];
    neighbours.rank.push_back(same ? it->second : kNowhere);
    neighbours.node.push_back(there.empty() ? kNowhere : node);
    if (same) {
      neighbours.beside.push_back(it->second);
    } else if (!there.empty()) {
      neighbours.beside.push_back(there[dealt[node]++ % there.size()]);
    } else {
      neighbours.beside.push_back(r % encoder.size());
    }
  }
  neighbours.in_view = InView(llm, encoder, num_nodes);
  return neighbours;
}

}  // namespace

absl::StatusOr<Layout> MakeLayout(const Job& job) {
  Layout layout;
  std::vector<uint32_t> nodes;
  bool seen[kNumPhases] = {};
  for (const PhaseSpec& spec : job.phases) {
    EVENKEEL_RETURN_IF_ERROR(CheckPhase(spec));
    bool& twice = seen[static_cast<size_t>(spec.phase)];
    if (twice) return absl::InvalidArgumentError(absl::StrCat("phases: ", NameOf(spec), " is there twice"));
    twice = true;
    if (spec.phase == Phase::kLlm) {
      layout.llm = &spec;
    } else {
      layout.encoders.push_back(&spec);
    }
    for (uint32_t global : spec.ranks) {
      const uint32_t node = job.NodeOf(global);
      if (nodes.empty() || nodes.back() != node) nodes.push_back(node);
    }
  }
  if (layout.llm == nullptr) return absl::InvalidArgumentError("phases: none is named llm; one must be");
  if (!std::is_sorted(nodes.begin(), nodes.end())) std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  layout.num_nodes = static_cast<uint32_t>(nodes.size());
  layout.llm_ranks = MakeRanks(job, *layout.llm, nodes);
  for (const PhaseSpec* spec : layout.encoders) {
    layout.encoder_ranks.push_back(MakeRanks(job, *spec, nodes));
    layout.neighbours.push_back(
        MakeNeighbours(layout.llm_ranks, layout.encoder_ranks.back(), layout.num_nodes));
  }
  return layout;
}

}  // namespace evenkeel::reorder
