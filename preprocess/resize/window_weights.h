// The weights of an axis at nearly the original size, where a few neighbouring inputs make several outputs,
// in the form of a byte shuffle: inputs are not transposed beforehand, and none is multiplied by 0 only
// because groups begin elsewhere.
//
// Thread safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace evenkeel::preprocess {

// Outputs in blocks of a few windows: kOutputs neighbouring outputs that need at most kInputs neighbouring
// inputs. A 32-bit lane belongs to one output and has a group of its inputs as in AxisWeights: two words or
// four bytes.
struct WindowWeights {
  static constexpr uint32_t kOutputs = 4;
  static constexpr uint32_t kInputs = 16;
  static constexpr uint32_t kMaxWindows = 4;  // of a block
  static constexpr uint32_t kMaxGroups = 5;   // of an output
  struct Block {
    uint32_t output = 0;                // the first one
    uint32_t window[kMaxWindows] = {};  // the first input of each
    uint32_t groups = 0;                // of each output: 1 to kMaxGroups
    size_t order = 0;                   // begin of its part of `order`
    size_t digits = 0;                  // begin of its part of `digits`
  };

  // Empty if windows do not fit this axis. The last block ends with the outputs, rounded up to four.
  std::vector<Block> blocks;
  // [block][group][output][byte of its lane]: position of that byte in the window; 0x80: the byte is 0.
  std::vector<uint8_t> order;
  // [block][group][digit][output]: a lane of signed digits, the highest first.
  std::vector<int32_t> digits;
};

struct AxisWeights;

// Fills `weights`, whose memory is reused, with blocks of `windows` windows, at most kMaxWindows. Empty if
// the axis has too few inputs or outputs, or if outputs need more inputs than a window has.
void MakeWindowWeights(const AxisWeights& axis, uint32_t windows, WindowWeights* weights);

}  // namespace evenkeel::preprocess
