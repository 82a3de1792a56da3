// Cuts a clip into overlapping frames, computes several of them at once, and normalises the features.
#include "preprocess/audio/log_mel.h"

#include <algorithm>
#include <array>

#include "preprocess/scratch.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kMaxLanes = 4;
constexpr uint32_t kMaxSamples = (kMaxLanes - 1) * kMelHop + kMelWindow;  // that a kernel reads at once
constexpr float kSilence = -10;                                           // log10(kMelFloor)

// The sample at `position` of the clip, which is padded to `padded` samples and reflected at both ends
// without repeating the edge, as numpy's pad(mode="reflect"). In frames that are kept, a position is at most
// half a window outside, hence padded_samples > 200.
float Sample(std::span<const float> samples, int64_t padded, int64_t position) {
  if (position < 0) position = -position;
  if (position >= padded) position = 2 * (padded - 1) - position;
  return static_cast<uint64_t>(position) < samples.size() ? samples[position] : 0.0f;
}

// Clamps features to at most 8 (80 dB) below the clip's maximum, then maps them to about [-1, 1]: (x + 4) /
// 4, where x is log10 of a power. Sixteen maxima are kept, which the compiler computes as vectors; a maximum
// does not depend on the order, except of NaNs, for which Compute() returns false.
void Normalize(std::span<float> values) {
  constexpr size_t kAtOnce = 16;
  std::array<float, kAtOnce> most;
  most.fill(kSilence);
  size_t i = 0;
  for (; i + kAtOnce <= values.size(); i += kAtOnce) {
    for (size_t l = 0; l < kAtOnce; ++l) most[l] = values[i + l] > most[l] ? values[i + l] : most[l];
  }
  for (; i < values.size(); ++i) most[0] = values[i] > most[0] ? values[i] : most[0];
  const float least = *std::max_element(most.begin(), most.end()) - 8.0f;
  for (float& value : values) value = ((value > least ? value : least) + 4.0f) * 0.25f;
}

}  // namespace

LogMel::LogMel(uint32_t num_mels, MelKernel kernel) : tables_(num_mels), kernel_(kernel) {}

bool LogMel::Compute(std::span<const float> samples, std::span<float> out, uint32_t padded_samples) const {
  samples = samples.first(std::min<size_t>(samples.size(), padded_samples));
  const size_t num_mels = tables_.triangles.size();
  const uint32_t frames = padded_samples / kHop;
  const int64_t needed = (kernel_.frames - 1) * kHop + kWindow;
  static thread_local ScratchBytes rest_memory;
  bool finite = true;
  for (uint32_t begin = 0; begin < frames; begin += kernel_.frames) {
    // A frame is centred on a multiple of the hop, so the first one begins half a window before the clip.
    const int64_t start = int64_t{begin} * kHop - kWindow / 2;
    const uint32_t count = std::min(kernel_.frames, frames - begin);
    // Frames with zeros only. (The end is reflected, so the last frames contain samples from before it.)
    if (start >= static_cast<int64_t>(samples.size()) && samples.size() + kWindow < padded_samples) {
      for (size_t m = 0; m < num_mels; ++m) std::fill_n(&out[m * frames + begin], count, kSilence);
      continue;
    }
    // Frames that touch an edge of the clip are computed from a copy with the samples beyond it; others in
    // place.
    std::array<float, kMaxSamples> edge;
    const float* from = edge.data();
    if (start >= 0 && start + needed <= static_cast<int64_t>(samples.size())) {
      from = &samples[start];
    } else {
      for (int64_t i = 0; i < needed; ++i) edge[i] = Sample(samples, padded_samples, start + i);
    }
    if (count == kernel_.frames) {
      finite &= kernel_.log_mel(tables_, from, &out[begin], frames);
      continue;
    }
    // There are fewer last frames than the kernel computes, so it writes to scratch memory.
    const std::span<float> rest = rest_memory.GetAs<float>(num_mels * kernel_.frames);
    finite &= kernel_.log_mel(tables_, from, rest.data(), kernel_.frames);
    for (size_t m = 0; m < num_mels; ++m) {
      std::copy_n(&rest[m * kernel_.frames], count, &out[m * frames + begin]);
    }
  }
  Normalize(out.first(num_mels * frames));
  return finite;
}

}  // namespace evenkeel::preprocess
