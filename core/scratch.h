// Memory that is kept from one item to the next, so that items in the steady state allocate nothing.
//
// Thread safety: none; what is kept belongs to one thread.
#pragma once

#include <cstddef>

namespace evenkeel {

// What is kept at most, of each piece of scratch, once a smaller item comes.
inline constexpr size_t kKeptScratchBytes = 32u << 20;

// A vector or string that grows while an item is read, emptied for the next one.
template <typename Container>
Container& Emptied(Container& kept) {
  kept.clear();
  if (kept.capacity() * sizeof(typename Container::value_type) > kKeptScratchBytes) kept.shrink_to_fit();
  return kept;
}

}  // namespace evenkeel
