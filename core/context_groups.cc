// Chooses the sizes of context groups such that all groups of these sizes fit into the job's pool.
#include "core/context_groups.h"

#include <algorithm>

namespace evenkeel {

std::vector<uint32_t> PoolSizes(uint32_t ranks, const GroupSpec& spec) {
  const uint32_t largest = std::min(spec.max_size, ranks);
  std::vector<uint32_t> sizes = {1};
  uint32_t room = spec.pool;
  const auto add = [&](uint32_t size) {
    const uint32_t groups = ranks / size;
    if (size < 2 || groups > room || std::find(sizes.begin(), sizes.end(), size) != sizes.end()) return;
    sizes.push_back(size);
    room -= groups;
  };
  if (largest >= 2) add(largest);
  uint32_t power = 1;
  while (power <= largest / 2) power *= 2;
  for (uint32_t size = power; size >= 2; size /= 2) add(size);
  if (!spec.powers_of_two) {
    for (uint32_t half = power; half >= 1; half /= 2) {
      if (uint64_t{half} * 3 <= largest) add(half * 3);
    }
    for (uint32_t size = 2; size <= largest; ++size) add(size);
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

std::vector<RankGroup> PoolOf(uint32_t ranks, const std::vector<uint32_t>& sizes) {
  std::vector<RankGroup> pool;
  for (uint32_t size : sizes) {
    for (uint32_t first = 0; size > 1 && first + size <= ranks; first += size) pool.push_back({first, size});
  }
  return pool;
}

}  // namespace evenkeel
