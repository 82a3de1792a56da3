// The integer programme that OrchMLLM, algorithm 3, solves, by CBC (coinor-cbc): the oracle of node_wise in a
// test and a benchmark, never a planner.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reorder/balance/balance.h"
#include "reorder/balance/node_wise.h"
#include "tests/reorder/balance/make_ranks.h"
#include "tests/reorder/omni_trace.h"
#include "tests/usual_phases.h"

namespace evenkeel::reorder {

// The items of one phase of a step, balanced by greedy_packed as the llm is, each apart from the other.
inline NodeWiseProblem DrawNodeWiseStep(uint64_t seed, uint32_t nodes, uint32_t per_node, Phase phase) {
  const uint32_t ranks = nodes * per_node;
  constexpr size_t kSamplesPerRank = 60;
  std::vector<Load> llm, cost;
  std::vector<uint32_t> sample, rows;
  for (const SampleLengths& lengths : DrawOmniTrace(seed, ranks * kSamplesPerRank)) {
    for (const SampleItem& item : lengths.items) {
      if (UsualPhaseOf(item.medium) != phase) continue;
      sample.push_back(static_cast<uint32_t>(llm.size()));
      cost.push_back(item.lengths.cost_length);
      rows.push_back(item.lengths.output_rows);
    }
    llm.push_back(lengths.llm_length);
  }
  const PhaseRanks where = MakeRanks(ranks, per_node);
  const std::vector<uint32_t> home = GreedyPacked({.ranks = &where, .cost = llm});
  const std::vector<uint32_t> batch = GreedyPacked({.ranks = &where, .cost = cost});
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> volumes;
  for (size_t i = 0; i < batch.size(); ++i) volumes[{home[sample[i]], batch[i]}] += rows[i];
  NodeWiseProblem problem{
      .source_node = where.node, .slots = std::vector<uint32_t>(nodes, per_node), .num_batches = ranks};
  for (const auto& [pair, count] : volumes) problem.volumes.push_back({pair.first, pair.second, count});
  return problem;
}

inline std::string Variable(uint32_t batch, uint32_t node) { return absl::StrCat("x", batch, "_", node); }

// min z, where no source sends more than z to other nodes; x[batch, node] is 1 where the batch goes there.
// The ranks of a node are alike, so batches are given to nodes: fewer variables than the paper's, the same
// optimum.
inline void WriteProgramme(const NodeWiseProblem& problem, const std::string& path) {
  std::ofstream out(path);
  out << "Minimize\n obj: z\nSubject To\n";
  std::vector<std::string> kept(problem.source_node.size());
  std::vector<uint64_t> total(kept.size(), 0);
  for (const auto& volume : problem.volumes) {
    absl::StrAppend(&kept[volume.source], " + ", volume.rows, " ",
                    Variable(volume.batch, problem.source_node[volume.source]), "\n");
    total[volume.source] += volume.rows;
  }
  for (size_t s = 0; s < kept.size(); ++s) out << " s" << s << ": z" << kept[s] << " >= " << total[s] << "\n";
  for (uint32_t b = 0; b < problem.num_batches; ++b) {
    out << " b" << b << ":";
    for (uint32_t n = 0; n < problem.slots.size(); ++n) out << " + " << Variable(b, n);
    out << " = 1\n";
  }
  for (uint32_t n = 0; n < problem.slots.size(); ++n) {
    out << " n" << n << ":";
    for (uint32_t b = 0; b < problem.num_batches; ++b) out << " + " << Variable(b, n);
    out << " = " << problem.slots[n] << "\n";
  }
  out << "Binaries\n";
  for (uint32_t b = 0; b < problem.num_batches; ++b) {
    for (uint32_t n = 0; n < problem.slots.size(); ++n) out << " " << Variable(b, n) << "\n";
  }
  out << "End\n";
}

struct Proof {
  double relaxed = 0;    // the optimum without integrality
  double bound = 0;      // no integer solution is below
  double objective = 0;  // of the best one found
};

// Of what CBC prints. `commands` follow the file's name.
inline Proof Cbc(const NodeWiseProblem& problem, const std::string& commands) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("evenkeel-node-wise-" + std::to_string(getpid()) + ".lp"))
          .string();
  WriteProgramme(problem, path);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen(("cbc '" + path + "' " + commands + " 2>&1").c_str(), "r"), pclose);
  Proof proof;
  char line[1024];
  bool optimal = false;
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe.get()) != nullptr) {
    std::sscanf(line, "Optimal objective %lf", &proof.relaxed);
    std::sscanf(line, "Continuous objective value is %lf", &proof.relaxed);
    std::sscanf(line, "Objective value: %lf", &proof.objective);
    std::sscanf(line, "Lower bound: %lf", &proof.bound);
    optimal |= std::string(line).find("Result - Optimal solution found") != std::string::npos;
  }
  std::filesystem::remove(path);
  proof.bound = optimal ? proof.objective : std::max(proof.bound, proof.relaxed);
  return proof;
}

inline bool HasCbc() { return std::system("command -v cbc >/dev/null 2>&1") == 0; }

}  // namespace evenkeel::reorder
