// Files as bytes, and mutations of them that are the same everywhere. Needs no test framework.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace evenkeel {

using Bytes = std::vector<std::byte>;

inline Bytes ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Bytes bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// A small generator of the same numbers everywhere.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 2 + 1) {}
  uint64_t Roll(uint64_t below) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return below == 0 ? 0 : (state_ >> 33) % below;
  }

 private:
  uint64_t state_;
};

// Flips bits, overwrites, cuts or doubles a few stretches. Mutation `n` of a file is always the same.
inline Bytes Mutated(const Bytes& original, uint64_t n) {
  Dice dice(n);
  Bytes bytes = original;
  if (n % 5 == 0) bytes.resize(dice.Roll(bytes.size()));
  for (uint64_t i = 0, count = 1 + dice.Roll(6); i < count && !bytes.empty(); ++i) {
    size_t at = dice.Roll(4) == 0 ? dice.Roll(std::min<size_t>(bytes.size(), 64)) : dice.Roll(bytes.size());
    switch (dice.Roll(4)) {
      case 0:
        bytes[at] ^= std::byte{1} << dice.Roll(8);
        break;
      case 1:
        bytes[at] = static_cast<std::byte>(dice.Roll(256));
        break;
      case 2:
        bytes[at] = dice.Roll(2) == 0 ? std::byte{0} : std::byte{0xff};
        break;
      case 3:
        bytes.insert(bytes.begin() + at, original.begin() + std::min(at, original.size()),
                     original.begin() + std::min(at + dice.Roll(9), original.size()));
        break;
    }
  }
  return bytes;
}

// How many mutations of a file a test tries; EVENKEEL_MUTATIONS asks for another number.
inline uint64_t MutationCount(uint64_t usual) {
  const char* wanted = std::getenv("EVENKEEL_MUTATIONS");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : usual;
}

}  // namespace evenkeel
