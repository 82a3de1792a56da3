// The weights of an axis near the size that there is, where a few inputs side by side make several outputs:
// what an instruction that puts bytes of a vector in any order takes. No input is brought into another
// order beforehand, and none is multiplied by a weight of 0 because groups begin elsewhere.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace evenkeel {

// Outputs in blocks of kOutputs, each of two windows of kWindow neighbouring inputs: one for the first half
// of its outputs, one for the second.
struct WindowWeights {
  static constexpr uint32_t kOutputs = 8;
  static constexpr uint32_t kWindow = 16;
  static constexpr uint32_t kLeastPairs = 2;
  static constexpr uint32_t kMostPairs = 5;
  // A pair of inputs of each output of a block.
  struct Pair {
    alignas(
        32) uint8_t order[4 * kOutputs];  // where the words of the pair are in their window; 0x80: nowhere
    alignas(32) int32_t lower[kOutputs];  // the weights of two words; of two digits the lower ones
    alignas(32) int32_t upper[kOutputs];  // what is above their lowest 16 bits, signed
  };
  struct Block {
    uint32_t output = 0;      // the first
    uint32_t window[2] = {};  // the first input of each
    uint32_t pairs = 0;       // from kLeastPairs to kMostPairs
    uint32_t first_pair = 0;  // among `pairs` of the axis
  };

  std::vector<Block> blocks;  // none: windows do not hold this axis. The last one ends with the outputs,
                              // rounded up to four
  std::vector<Pair> pairs;
};

struct AxisWeights;

// Fills `windows`, whose memory is reused; without blocks where the axis has too few inputs or outputs, or
// where windows do not hold what their outputs need.
void MakeWindowWeights(const AxisWeights& axis, WindowWeights* windows);

}  // namespace evenkeel
