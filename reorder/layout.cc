// Numbers the nodes, and finds for every llm rank the encoder rank on the same global rank or node.
#include "reorder/layout.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "reorder/balance/balance.h"
#include "reorder/by_rank.h"

namespace evenkeel::reorder {
namespace {

std::string NameOf(const PhaseSpec& spec) { return std::string(PhaseName(spec.phase)); }

absl::Status CheckPhase(const PhaseSpec& spec) {
  if (spec.ranks.empty())
    return absl::InvalidArgumentError(absl::StrCat("phase ", NameOf(spec), " has no ranks"));
  std::vector<uint32_t> sorted = spec.ranks;
  std::sort(sorted.begin(), sorted.end());
  auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("phase ", NameOf(spec), " names global rank ", *twice, " twice"));
  }
  if (FindBalancer(spec.algorithm) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("phase ", NameOf(spec), ": unknown algorithm '",
                                                   spec.algorithm, "'; known are ", BalancerNames()));
  }
  return absl::OkStatus();
}

PhaseRanks MakeRanks(const Job& job, const PhaseSpec& spec, const std::vector<uint32_t>& nodes) {
  PhaseRanks ranks;
  ranks.global = spec.ranks;
  for (uint32_t global : ranks.global) {
    const auto at = std::lower_bound(nodes.begin(), nodes.end(), job.NodeOf(global));
    ranks.node.push_back(static_cast<uint32_t>(at - nodes.begin()));
  }
  ranks.on_node_begin.push_back(0);
  for (const std::vector<uint32_t>& here : UnitsByRank(ranks.node, nodes.size())) {
    ranks.on_node.insert(ranks.on_node.end(), here.begin(), here.end());
    ranks.on_node_begin.push_back(static_cast<uint32_t>(ranks.on_node.size()));
  }
  return ranks;
}

bool HasSameRatioOnEveryNode(const PhaseRanks& llm, const PhaseRanks& encoder, uint32_t num_nodes) {
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
  std::map<uint32_t, uint32_t> by_global;  // the encoder's ranks
  for (uint32_t r = 0; r < encoder.size(); ++r) by_global[encoder.global[r]] = r;
  std::vector<uint32_t> dealt(num_nodes, 0);  // llm ranks that share the node's encoder ranks in turn
  Neighbours neighbours;
  for (uint32_t r = 0; r < llm.size(); ++r) {
    const uint32_t node = llm.node[r];
    const auto there = encoder.OnNode(node);
    const auto it = by_global.find(llm.global[r]);
    const bool same = it != by_global.end();
    neighbours.rank.push_back(same ? it->second : kNowhere);
    neighbours.node.push_back(there.empty() ? kNowhere : node);
    if (same) {
      neighbours.default_rank.push_back(it->second);
    } else if (!there.empty()) {
      neighbours.default_rank.push_back(there[dealt[node]++ % there.size()]);
    } else {
      neighbours.default_rank.push_back(r % encoder.size());
    }
  }
  neighbours.can_be_co_balanced = HasSameRatioOnEveryNode(llm, encoder, num_nodes);
  return neighbours;
}

}  // namespace

absl::StatusOr<Layout> MakeLayout(const Job& job, const PhaseSpec& llm,
                                  std::vector<const PhaseSpec*> encoders) {
  Layout layout{.llm = &llm, .encoders = std::move(encoders)};
  std::vector<uint32_t> nodes;
  const auto add = [&](const PhaseSpec& spec) {
    for (uint32_t global : spec.ranks) nodes.push_back(job.NodeOf(global));
    return CheckPhase(spec);
  };
  EVENKEEL_RETURN_IF_ERROR(add(llm));
  for (const PhaseSpec* spec : layout.encoders) EVENKEEL_RETURN_IF_ERROR(add(*spec));
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  layout.num_nodes = static_cast<uint32_t>(nodes.size());
  layout.llm_ranks = MakeRanks(job, llm, nodes);
  for (const PhaseSpec* spec : layout.encoders) {
    layout.encoder_ranks.push_back(MakeRanks(job, *spec, nodes));
    layout.neighbours.push_back(
        MakeNeighbours(layout.llm_ranks, layout.encoder_ranks.back(), layout.num_nodes));
  }
  return layout;
}

}  // namespace evenkeel::reorder
