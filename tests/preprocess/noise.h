// Bytes that are hard on a resizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/mutations.h"

namespace evenkeel::preprocess {

// Two of three are 0 or 255, so that sums leave the range of a byte in both directions.
inline std::vector<uint8_t> SharpNoise(Dice& dice, size_t count) {
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes)
    byte = static_cast<uint8_t>(dice.Roll(3) == 0 ? dice.Roll(256) : dice.Roll(2) * 255);
  return bytes;
}

}  // namespace evenkeel::preprocess
