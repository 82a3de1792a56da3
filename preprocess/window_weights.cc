#include "preprocess/window_weights.h"

#include <algorithm>
#include <span>

#include "preprocess/axis_weights.h"

namespace evenkeel {
namespace {

constexpr uint32_t kHalf = WindowWeights::kOutputs / 2;

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

// A block's halves share a window where it holds what both need.
bool FindWindow(const AxisWeights& axis, uint32_t output, uint32_t outputs, uint32_t* window) {
  uint32_t first = axis.in, end = 0;
  for (uint32_t i = 0; i < outputs; ++i) {
    const Inputs inputs = InputsOf(axis, output + i);
    first = std::min(first, inputs.first);
    end = std::max(end, inputs.end());
  }
  *window = std::min(first, axis.in - WindowWeights::kWindow);
  return end - *window <= WindowWeights::kWindow;
}

// What is above the lowest 16 bits, when these are signed.
int32_t UpperOf(int32_t weight) { return (weight + 0x8000) >> 16; }

// Whether no sum of bytes and upper digits leaves 16 bits.
bool UpperSumsFit(const Inputs& inputs) {
  int32_t least = 0, most = 0;
  for (int32_t weight : inputs.weights) (weight < 0 ? least : most) += 255 * UpperOf(weight);
  return least >= -0x8000 && most <= 0x7fff;
}

void SetPair(const Inputs& inputs, uint32_t window, uint32_t pair, uint32_t output, WindowWeights::Pair* to) {
  uint32_t lower = 0, upper = 0;
  for (uint32_t i = 0; i < 2; ++i) {
    uint8_t* order = to->order + 4 * output + 2 * i;
    order[0] = order[1] = 0x80;
    const uint32_t k = 2 * pair + i;
    if (k >= inputs.weights.size()) continue;
    order[0] = static_cast<uint8_t>(inputs.first + k - window);
    const int32_t weight = inputs.weights[k];
    lower |= (static_cast<uint32_t>(weight) & 0xffff) << (16 * i);
    upper |= (static_cast<uint32_t>(UpperOf(weight)) & 0xffff) << (16 * i);
  }
  to->lower[output] = static_cast<int32_t>(lower);
  to->upper[output] = static_cast<int32_t>(upper);
}

bool AddBlock(const AxisWeights& axis, uint32_t output, WindowWeights* windows) {
  WindowWeights::Block block;
  block.output = output;
  if (FindWindow(axis, output, WindowWeights::kOutputs, &block.window[0])) {
    block.window[1] = block.window[0];
  } else if (!FindWindow(axis, output, kHalf, &block.window[0]) ||
             !FindWindow(axis, output + kHalf, kHalf, &block.window[1])) {
    return false;
  }
  size_t most = 0;
  for (uint32_t i = 0; i < WindowWeights::kOutputs; ++i) {
    const Inputs inputs = InputsOf(axis, output + i);
    if (!UpperSumsFit(inputs)) return false;
    most = std::max(most, inputs.weights.size());
  }
  block.pairs = std::max(WindowWeights::kLeastPairs, static_cast<uint32_t>((most + 1) / 2));
  if (block.pairs > WindowWeights::kMostPairs) return false;
  block.first_pair = static_cast<uint32_t>(windows->pairs.size());
  for (uint32_t pair = 0; pair < block.pairs; ++pair) {
    WindowWeights::Pair& to = windows->pairs.emplace_back();
    for (uint32_t i = 0; i < WindowWeights::kOutputs; ++i) {
      SetPair(InputsOf(axis, output + i), block.window[i / kHalf], pair, i, &to);
    }
  }
  windows->blocks.push_back(block);
  return true;
}

}  // namespace

void MakeWindowWeights(const AxisWeights& axis, WindowWeights* windows) {
  windows->blocks.clear();
  windows->pairs.clear();
  const uint32_t outputs = (axis.outputs() + kHalf - 1) / kHalf * kHalf;
  if (axis.in < WindowWeights::kWindow || outputs < WindowWeights::kOutputs) return;
  bool fits = true;
  for (uint32_t x = 0; fits && x < outputs; x += WindowWeights::kOutputs) {
    fits = AddBlock(axis, std::min(x, outputs - WindowWeights::kOutputs), windows);
  }
  if (!fits) windows->blocks.clear();
}

}  // namespace evenkeel
