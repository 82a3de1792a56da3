// The order in which a rank asks the workers of the sorted ready list.
//
// The order is rotated by rank, step and the part's position, so that all workers get equal shares. It starts
// with a subset of kHomeWorkers that depends on the rank alone, so that a rank holds few sessions in a large
// fleet; if these are busy or gone, the others follow. Ranks that disagree on the list lose balance, never
// correctness.
//
// Thread safety: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace evenkeel::client {

inline constexpr size_t kHomeWorkers = 4;

// A permutation of the positions in the sorted list.
inline std::vector<size_t> AskOrder(size_t num_workers, uint32_t rank, uint64_t step, uint32_t position) {
  std::vector<size_t> order;
  order.reserve(num_workers);
  size_t homes = num_workers < kHomeWorkers ? num_workers : kHomeWorkers;
  for (size_t i = 0; i < homes; ++i) order.push_back((rank + (step + position + i) % homes) % num_workers);
  for (size_t i = homes; i < num_workers; ++i) order.push_back((rank + i) % num_workers);
  return order;
}

}  // namespace evenkeel::client
