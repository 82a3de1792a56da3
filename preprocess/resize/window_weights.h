// The weights of an axis near the size that there is, where a few inputs side by side make several outputs:
// as an instruction takes them that puts bytes of a vector in any order. No input is brought into another
// order beforehand, and none is multiplied by a weight of 0 because groups begin elsewhere.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace evenkeel::preprocess {

// Outputs in blocks of a few windows: kOutputs neighbouring outputs, which need no more than kInputs
// neighbouring inputs. A lane of 32 bits belongs to an output, and holds a group of its inputs as AxisWeights
// has them: two as words or four as bytes.
struct WindowWeights {
  static constexpr uint32_t kOutputs = 4;
  static constexpr uint32_t kInputs = 16;
  static constexpr uint32_t kMostWindows = 4;  // of a block
  static constexpr uint32_t kMostGroups = 5;   // of an output
  struct Block {
    uint32_t output = 0;                 // the first
    uint32_t window[kMostWindows] = {};  // the first input of each
    uint32_t groups = 0;                 // of each output: 1 to kMostGroups
    size_t order = 0;                    // where its part of `order` begins
    size_t digits = 0;                   // and of `digits`
  };

  // None where windows do not hold this axis. The last one ends with the outputs, rounded up to four.
  std::vector<Block> blocks;
  // [block][group][output][byte of its lane]: where that byte is in the window; 0x80: it is 0.
  std::vector<uint8_t> order;
  // [block][group][digit][output]: a lane of signed digits, the highest first.
  std::vector<int32_t> digits;
};

struct AxisWeights;

// Fills `weights`, whose memory is reused, with blocks of `windows`, at most kMostWindows; without any where
// the axis has too few inputs or outputs, or windows do not hold what their outputs need.
void MakeWindowWeights(const AxisWeights& axis, uint32_t windows, WindowWeights* weights);

}  // namespace evenkeel::preprocess
