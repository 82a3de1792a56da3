// What this process allocates through operator new, that is, in C++: the codecs' own allocations come from
// malloc.
#pragma once

#include <cstdint>

namespace evenkeel::preprocess {

// Allocations since it was made, of all threads.
class CountedAllocations {
 public:
  CountedAllocations();
  uint64_t count() const;
  uint64_t bytes() const;

 private:
  uint64_t count_before_, bytes_before_;
};

}  // namespace evenkeel::preprocess
