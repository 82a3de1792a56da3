// Memory that a thread keeps from one item to the next, so that items in the steady state allocate nothing.
//
// Thread safety: each object belongs to one thread; they are thread_local where they are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace evenkeel {

// What is kept at most, of each piece of scratch, once a smaller item comes.
inline constexpr size_t kKeptScratchBytes = 32u << 20;

// Bytes for the next item; nothing is cleared. Beyond kKeptScratchBytes they are given back as soon as less
// than half is asked for.
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

// A vector that grows while an item is read, emptied for the next one.
template <typename T>
std::vector<T>& Emptied(std::vector<T>& kept) {
  kept.clear();
  if (kept.capacity() * sizeof(T) > kKeptScratchBytes) kept.shrink_to_fit();
  return kept;
}

}  // namespace evenkeel
