#include "preprocess/window_weights.h"

#include <algorithm>
#include <span>

#include "preprocess/axis_weights.h"

namespace evenkeel {
namespace {

// The inputs of an output, from the first to the last whose weight is not 0.
struct Inputs {
  uint32_t first = 0;
  std::span<const int32_t> weights;

  uint32_t end() const { return first + static_cast<uint32_t>(weights.size()); }
};

// The last output stands for those beyond.
Inputs InputsOf(const AxisWeights& axis, uint32_t output) {
  output = std::min(output, axis.outputs() - 1);
  std::span<const int32_t> weights(axis.values_of(output), size_t{axis.group} * axis.num_groups[output]);
  uint32_t first = axis.group * axis.first_group[output];
  for (; !weights.empty() && weights.front() == 0; ++first) weights = weights.subspan(1);
  while (!weights.empty() && weights.back() == 0) weights = weights.first(weights.size() - 1);
  return {first, weights};
}

// The window of `outputs` outputs from `output`, if one holds what they need.
bool FindWindow(const AxisWeights& axis, uint32_t output, uint32_t outputs, uint32_t* window) {
  uint32_t first = axis.in, end = 0;
  for (uint32_t i = 0; i < outputs; ++i) {
    const Inputs inputs = InputsOf(axis, output + i);
    first = std::min(first, inputs.first);
    end = std::max(end, inputs.end());
  }
  *window = std::min(first, axis.in - WindowWeights::kInputs);
  return end - *window <= WindowWeights::kInputs;
}

// Windows of a block are the same one where it holds what all of its outputs need.
bool FindWindows(const AxisWeights& axis, uint32_t windows, WindowWeights::Block* block) {
  constexpr uint32_t kOutputs = WindowWeights::kOutputs;
  if (FindWindow(axis, block->output, kOutputs * windows, &block->window[0])) {
    std::fill_n(block->window, windows, block->window[0]);
    return true;
  }
  for (uint32_t w = 0; w < windows; ++w) {
    if (!FindWindow(axis, block->output + kOutputs * w, kOutputs, &block->window[w])) return false;
  }
  return true;
}

// Of a signed number of as many bits as an input has in a lane. Signed digits are those of the sum with half
// of a digit's range in each, less that.
uint32_t DigitOf(const AxisWeights& axis, int32_t weight, uint32_t digit) {
  const uint32_t bits = 32 / axis.group;
  const uint32_t bias = bits == 8 ? 0x80808080 : 0x80008000;
  const uint32_t digits = (static_cast<uint32_t>(weight) + bias) ^ bias;
  return digits >> (bits * (axis.digits - 1 - digit)) & ((1u << bits) - 1);
}

// Whether no sum of bytes and of the upper one of two digits leaves 16 bits, where these are added.
bool UpperSumsFit(const AxisWeights& axis, const Inputs& inputs) {
  if (axis.group != GroupOf(WeightForm::kWords) || axis.digits == 1) return true;
  int32_t least = 0, most = 0;
  for (int32_t weight : inputs.weights) {
    (weight < 0 ? least : most) += 255 * static_cast<int16_t>(DigitOf(axis, weight, 0));
  }
  return least >= -0x8000 && most <= 0x7fff;
}

// The lanes of group `group` of an output.
void AddOrder(const AxisWeights& axis, const Inputs& inputs, uint32_t window, uint32_t group,
              std::vector<uint8_t>* order) {
  for (uint32_t i = 0; i < axis.group; ++i) {
    const uint32_t input = axis.group * group + i;
    const bool there = input < inputs.weights.size();
    order->push_back(there ? static_cast<uint8_t>(inputs.first + input - window) : 0x80);
    order->insert(order->end(), 4 / axis.group - 1, 0x80);
  }
}
int32_t DigitLane(const AxisWeights& axis, const Inputs& inputs, uint32_t group, uint32_t digit) {
  uint32_t lane = 0;
  for (uint32_t i = 0; i < axis.group; ++i) {
    const uint32_t input = axis.group * group + i;
    if (input < inputs.weights.size())
      lane |= DigitOf(axis, inputs.weights[input], digit) << (32 / axis.group * i);
  }
  return static_cast<int32_t>(lane);
}

bool AddBlock(const AxisWeights& axis, uint32_t output, uint32_t windows, WindowWeights* weights) {
  constexpr uint32_t kOutputs = WindowWeights::kOutputs;
  WindowWeights::Block block{
      .output = output, .order = weights->order.size(), .digits = weights->digits.size()};
  if (!FindWindows(axis, windows, &block)) return false;
  Inputs inputs[kOutputs * WindowWeights::kMostWindows];
  size_t most = 1;
  for (uint32_t i = 0; i < kOutputs * windows; ++i) {
    inputs[i] = InputsOf(axis, output + i);
    if (!UpperSumsFit(axis, inputs[i])) return false;
    most = std::max(most, inputs[i].weights.size());
  }
  block.groups = static_cast<uint32_t>((most + axis.group - 1) / axis.group);
  if (block.groups > WindowWeights::kMostGroups) return false;
  for (uint32_t group = 0; group < block.groups; ++group) {
    for (uint32_t i = 0; i < kOutputs * windows; ++i) {
      AddOrder(axis, inputs[i], block.window[i / kOutputs], group, &weights->order);
    }
    for (uint32_t digit = 0; digit < axis.digits; ++digit) {
      for (uint32_t i = 0; i < kOutputs * windows; ++i) {
        weights->digits.push_back(DigitLane(axis, inputs[i], group, digit));
      }
    }
  }
  weights->blocks.push_back(block);
  return true;
}

}  // namespace

void MakeWindowWeights(const AxisWeights& axis, uint32_t windows, WindowWeights* weights) {
  weights->blocks.clear();
  weights->order.clear();
  weights->digits.clear();
  constexpr uint32_t kOutputs = WindowWeights::kOutputs;
  const uint32_t step = kOutputs * windows;
  const uint32_t outputs = (axis.outputs() + kOutputs - 1) / kOutputs * kOutputs;
  if (windows == 0 || axis.in < WindowWeights::kInputs || outputs < step) return;
  bool hold = true;
  for (uint32_t x = 0; hold && x < outputs; x += step) {
    hold = AddBlock(axis, std::min(x, outputs - step), windows, weights);
  }
  if (!hold) weights->blocks.clear();
}

}  // namespace evenkeel
