// Memory for one call: arrays without constructors or destructors, cut from few large pieces that are all
// given back at once. A first call would otherwise wait for the kernel at every page of every vector.
//
//   Workspace memory(1 << 20);                               // got at once; more is got where it is not
//   enough std::span<uint32_t> rank = memory.Take<uint32_t>(items);  // not initialised
//   {
//     Workspace::Scope scope(memory);                        // what is taken from here on is free again
//     behind it std::span<Load> cost = memory.Zeros<Load>(items);
//   }
//
// Thread safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace evenkeel::reorder {

inline constexpr size_t kLargePage = size_t{1} << 21;  // bytes

constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Asks the kernel for memory that is about to be written all through: for large pages, where it has them; of
// what is left, for all the small ones at once, because to wait for each costs twice as much. A hint that
// changes no content. Very little memory is left alone.
void ExpectWrites(const void* data, size_t bytes);

// Reserves room for `count` in a vector that is about to be written, and asks for its memory as above. Of
// large pages room is got up to the end of the last one: the kernel puts only whole ones where they can be.
template <typename T>
void ReserveToWrite(std::vector<T>& vector, size_t count) {
  constexpr size_t kOfTheAllocator = 64;
  size_t bytes = count * sizeof(T);
  if (bytes >= kLargePage) {
    bytes = RoundUp(bytes + kOfTheAllocator, kLargePage) - kOfTheAllocator;
  }
  vector.reserve(bytes / sizeof(T));
  ExpectWrites(vector.data(), count * sizeof(T));
}

// The same, and then its size: what is new is zero.
template <typename T>
void ResizeToWrite(std::vector<T>& vector, size_t count) {
  ReserveToWrite(vector, count);
  vector.resize(count);
}

// What `make` gives for 0, 1, ... one after the other, to those who copy from an iterator.
template <typename Make>
struct MadeInTurn {
  using iterator_category = std::forward_iterator_tag;  // so that a vector asks how many there are
  using value_type = std::invoke_result_t<Make&, size_t>;
  using difference_type = ptrdiff_t;
  using pointer = void;
  using reference = value_type;

  Make* make;
  size_t next;

  value_type operator*() const { return (*make)(next); }
  MadeInTurn& operator++() { return ++next, *this; }
  friend bool operator==(const MadeInTurn& a, const MadeInTurn& b) { return a.next == b.next; }
};

// Appends make(0), make(1), ... make(count - 1), which is called for each once and in this order: every
// element is written once, without a look at how much room there is.
template <typename T, typename Make>
void WriteAll(std::vector<T>& vector, size_t count, Make make) {
  vector.insert(vector.end(), MadeInTurn<Make>{&make, 0}, MadeInTurn<Make>{&make, count});
}

class Workspace {
 public:
  // Nothing is got before something is taken; then at least so many bytes.
  explicit Workspace(size_t expected_bytes) : expected_(expected_bytes) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // An array of `count`, valid until the workspace or the innermost scope ends; whoever takes it writes it.
  template <typename T>
  std::span<T> Take(size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
    static_assert(alignof(T) <= kAlignment);
    return {static_cast<T*>(Allocate(count * sizeof(T))), count};
  }
  // The same, all bytes 0.
  template <typename T>
  std::span<T> Zeros(size_t count) {
    const std::span<T> array = Take<T>(count);
    if (count > 0) std::memset(static_cast<void*>(array.data()), 0, array.size_bytes());
    return array;
  }

  // Arrays taken while it lives end with it. Scopes end in the reverse of the order in which they began.
  class Scope {
   public:
    explicit Scope(Workspace& workspace)
        : workspace_(workspace), piece_(workspace.piece_), used_(workspace.used_) {}
    ~Scope() { workspace_.ReturnTo(piece_, used_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    const size_t piece_, used_;
  };

 private:
  static constexpr size_t kAlignment = 64;  // a cache line

  struct Release {
    size_t alignment;
    void operator()(std::byte* data) const { ::operator delete (data, std::align_val_t{alignment}); }
  };
  struct Piece {
    std::unique_ptr<std::byte, Release> data;
    size_t size;
  };

  void* Allocate(size_t bytes);
  void AddPiece(size_t bytes);
  void ReturnTo(size_t piece, size_t used);

  const size_t expected_;
  std::vector<Piece> pieces_;
  size_t piece_ = 0;  // that is being cut
  size_t used_ = 0;   // of it
};

}  // namespace evenkeel::reorder
