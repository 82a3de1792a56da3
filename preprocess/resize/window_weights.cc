// Packs an axis' weights for rows that are filtered in their own order: for every block of outputs, which
// bytes of its window a shuffle picks, and the digits that multiply them.
#include "preprocess/resize/window_weights.h"

#include <algorithm>
#include <span>

#include "preprocess/resize/axis_weights.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kOutputs = WindowWeights::kOutputs;

// The inputs of an output, from the first to the last with a weight other than 0.
struct Inputs {
  uint32_t first = 0;
  std::span<const int32_t> weights;

  uint32_t end() const { return first + static_cast<uint32_t>(weights.size()); }
};

Inputs InputsOf(const AxisWeights& axis, uint32_t output) {
  std::span<const int32_t> weights(axis.values_of(output), size_t{axis.group} * axis.num_groups[output]);
  uint32_t first = axis.group * axis.first_group[output];
  for (; !weights.empty() && weights.front() == 0; ++first) weights = weights.subspan(1);
  while (!weights.empty() && weights.back() == 0) weights = weights.first(weights.size() - 1);
  return {first, weights};
}

// Finds the first input of a window that has all inputs of `outputs`. False: they do not fit one window.
bool FindWindow(const AxisWeights& axis, std::span<const Inputs> outputs, uint32_t* window) {
  uint32_t first = axis.in, end = 0;
  for (const Inputs& inputs : outputs) {
    first = std::min(first, inputs.first);
    end = std::max(end, inputs.end());
  }
  *window = std::min(first, axis.in - WindowWeights::kInputs);
  return end - *window <= WindowWeights::kInputs;
}

// All windows of a block are the same one if it has the inputs of all of its outputs: then it is loaded once.
bool FindWindows(const AxisWeights& axis, std::span<const Inputs> outputs, WindowWeights::Block* block) {
  const size_t windows = outputs.size() / kOutputs;
  if (FindWindow(axis, outputs, &block->window[0])) {
    std::fill_n(block->window, windows, block->window[0]);
    return true;
  }
  for (size_t w = 0; w < windows; ++w) {
    if (!FindWindow(axis, outputs.subspan(kOutputs * w, kOutputs), &block->window[w])) return false;
  }
  return true;
}

// The signed digits of a weight, each with as many bits as an input has in its lane: weight = sum of digit d
// * 2^(bits d), with digits from -2^(bits - 1) to 2^(bits - 1) - 1, because the multiplications take signed
// factors. A digit with its top bit set counts 2^bits less than its unsigned value, so the next one has to be
// 1 larger. Adding half of a digit's range to every digit makes these carries, and flipping the same bits
// takes the halves off again. For example, with bytes 0x0180 (384) becomes the digits 2 and -128.
template <uint32_t kGroup>
uint32_t DigitsOf(int32_t weight) {
  constexpr uint32_t kBias = kGroup == 2 ? 0x80008000 : 0x80808080;
  return (static_cast<uint32_t>(weight) + kBias) ^ kBias;
}

// Whether the 16-bit sum of bytes times upper digits cannot overflow, if the weight has two digits. Bounds:
// every input with a negative weight is 255 and the others are 0, or the reverse. (Lower digits are summed in
// 32 bits.)
bool UpperSumsFit(const AxisWeights& axis, const Inputs& inputs) {
  if (axis.group != GroupOf(WeightForm::kWords) || axis.digits == 1) return true;
  int32_t least = 0, most = 0;
  for (int32_t weight : inputs.weights) {
    (weight < 0 ? least : most) += 255 * static_cast<int16_t>(DigitsOf<2>(weight) >> 16);
  }
  return least >= -0x8000 && most <= 0x7fff;
}

// Writes order and digits of output `i` of a block's `outputs`: for input k, which byte of the window goes to
// its place in the lane, and its digits at the same place of each digit's lane. A place without an input
// keeps 0x80, which the shuffle turns into 0. A word's upper byte keeps it too.
template <uint32_t kGroup>
void SetOutput(uint32_t digits, const Inputs& inputs, uint32_t window, size_t i, size_t outputs,
               uint8_t* order, int32_t* lanes) {
  constexpr uint32_t kBits = 32 / kGroup;
  constexpr uint32_t kMask = (1u << kBits) - 1;
  for (uint32_t k = 0; k < inputs.weights.size(); ++k) {
    const uint32_t group = k / kGroup, place = k % kGroup;
    order[4 * (outputs * group + i) + 4 / kGroup * place] = static_cast<uint8_t>(inputs.first + k - window);
    uint32_t left = DigitsOf<kGroup>(inputs.weights[k]);
    for (uint32_t d = digits; d-- > 0; left >>= kBits) {  // the lowest first
      int32_t& lane = lanes[outputs * (size_t{digits} * group + d) + i];
      lane = static_cast<int32_t>(static_cast<uint32_t>(lane) | (left & kMask) << (kBits * place));
    }
  }
}

// Appends the block of `outputs`, of which `first` is the first. False: it does not have the form of a block.
bool AddBlock(const AxisWeights& axis, uint32_t first, std::span<const Inputs> outputs,
              WindowWeights* weights) {
  WindowWeights::Block block;
  block.output = first;
  block.order = weights->order.size();
  block.digits = weights->digits.size();
  if (!FindWindows(axis, outputs, &block)) return false;
  size_t most = 1;
  for (const Inputs& inputs : outputs) {
    // If a single output does not fit, the whole axis is filtered by the general loop.
    if (!UpperSumsFit(axis, inputs)) return false;
    most = std::max(most, inputs.weights.size());
  }
  block.groups = static_cast<uint32_t>((most + axis.group - 1) / axis.group);
  if (block.groups > WindowWeights::kMaxGroups) return false;
  const size_t lanes = outputs.size() * block.groups;
  weights->order.resize(block.order + 4 * lanes, 0x80);
  weights->digits.resize(block.digits + axis.digits * lanes, 0);
  for (size_t i = 0; i < outputs.size(); ++i) {
    (axis.group == 2 ? SetOutput<2> : SetOutput<4>)(axis.digits, outputs[i], block.window[i / kOutputs], i,
                                                    outputs.size(), &weights->order[block.order],
                                                    &weights->digits[block.digits]);
  }
  weights->blocks.push_back(block);
  return true;
}

}  // namespace

void MakeWindowWeights(const AxisWeights& axis, uint32_t windows, WindowWeights* weights) {
  weights->blocks.clear();
  weights->order.clear();
  weights->digits.clear();
  // The last block ends with the outputs and may overlap the one before it: the same values are then stored
  // twice.
  const uint32_t step = kOutputs * windows;
  const uint32_t rounded = (axis.outputs() + kOutputs - 1) / kOutputs * kOutputs;
  if (windows == 0 || axis.in < WindowWeights::kInputs || rounded < step) return;
  static thread_local std::vector<Inputs> outputs;
  outputs.resize(rounded);
  // Beyond the last output it is repeated.
  for (uint32_t x = 0; x < rounded; ++x) outputs[x] = InputsOf(axis, std::min(x, axis.outputs() - 1));
  bool hold = true;
  for (uint32_t x = 0; hold && x < rounded; x += step) {
    const uint32_t first = std::min(x, rounded - step);
    hold = AddBlock(axis, first, std::span(outputs).subspan(first, step), weights);
  }
  if (!hold) weights->blocks.clear();
}

}  // namespace evenkeel::preprocess
