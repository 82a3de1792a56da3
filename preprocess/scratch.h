// Bytes that a thread keeps from one item to the next; core/scratch.h has the same for vectors.
//
// Thread safety: each object belongs to one thread; users make them thread_local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "core/scratch.h"

namespace evenkeel::preprocess {

// Memory for the next item, not cleared. Beyond kKeptScratchBytes it is freed once less than half of it is
// requested.
class ScratchBytes {
 public:
  uint8_t* Get(size_t size) {
    if (size > capacity_ || (capacity_ > kKeptScratchBytes && size < capacity_ / 2)) {
      bytes_.reset();
      capacity_ = 0;
      bytes_ = std::make_unique_for_overwrite<uint8_t[]>(size);
      capacity_ = size;
    }
    return bytes_.get();
  }
  // The same as `count` numbers, aligned as operator new aligns.
  template <typename T>
  std::span<T> GetAs(size_t count) {
    static_assert(std::is_trivial_v<T> && alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    return {reinterpret_cast<T*>(Get(count * sizeof(T))), count};
  }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  size_t capacity_ = 0;
};

}  // namespace evenkeel::preprocess
