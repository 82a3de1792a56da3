// Draws three-modality length traces: captions, documents with many images, speech, spoken questions, video
// with sound, text. Strong modality-composition incoherence, the hard case for balancing. Made up, not
// measured.
//
// The same lengths on every machine and build: without libm (plain_mathematics.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "core/words.h"
#include "tests/reorder/plain_mathematics.h"

namespace evenkeel::reorder {

// SplitMix64: small, seedable, the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint64_t Below(uint64_t bound) { return bound == 0 ? 0 : Bits() % bound; }
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }
  double Normal() { return std::sqrt(-2 * plain::Log(1 - Uniform())) * plain::CosOfTurns(Uniform()); }
  // A lognormal length within bounds.
  uint32_t Length(double mu, double sigma, double low, double high) {
    return static_cast<uint32_t>(std::min(high, std::max(low, plain::Exp(mu + sigma * Normal()))));
  }

 private:
  uint64_t state_;
};

// A sample of vision and audio items; the llm sees a quarter of an image's patches and half of a clip's
// frames.
inline SampleLengths MakeOmniSample(uint32_t text, const std::vector<uint32_t>& vision, Medium vision_medium,
                                    const std::vector<uint32_t>& audio) {
  SampleLengths sample;
  sample.llm_length = text;
  for (uint32_t v : vision) sample.items.push_back({vision_medium, {v, v, (v + 3) / 4}});
  for (uint32_t a : audio) sample.items.push_back({Medium::kAudio, {a, a, (a + 1) / 2}});
  for (const SampleItem& item : sample.items) sample.llm_length += item.lengths.output_rows;
  sample.loss_tokens = text / 2;
  return sample;
}

inline SampleLengths DrawOmniSample(Random& random) {
  const double kind = random.Uniform();
  if (kind < 0.30) {
    const uint32_t image = random.Length(7.2, 0.7, 64, 16384);
    return MakeOmniSample(random.Length(4.0, 0.8, 8, 512), {image}, Medium::kImage, {});
  }
  if (kind < 0.40) {
    std::vector<uint32_t> pages(2 + random.Below(11));
    for (uint32_t& page : pages) page = random.Length(7.4, 0.6, 256, 16384);
    return MakeOmniSample(random.Length(6.3, 0.8, 64, 6000), pages, Medium::kImage, {});
  }
  if (kind < 0.65) {
    const uint32_t speech = random.Length(6.6, 0.5, 50, 3000);
    const double text = speech * 0.12 * (0.7 + 0.6 * random.Uniform());
    return MakeOmniSample(std::max(4u, static_cast<uint32_t>(text)), {}, Medium::kImage, {speech});
  }
  if (kind < 0.80) {
    const uint32_t question = random.Length(6.0, 0.9, 50, 3000);
    return MakeOmniSample(random.Length(3.0, 1.5, 2, 2000), {}, Medium::kImage, {question});
  }
  if (kind < 0.86) {
    const uint32_t frames = random.Length(9.2, 0.8, 1024, 65536), sound = random.Length(7.0, 0.6, 200, 6000);
    return MakeOmniSample(random.Length(4.5, 1.0, 8, 1500), {frames}, Medium::kVideo, {sound});
  }
  return MakeOmniSample(random.Length(5.8, 1.1, 16, 8000), {}, Medium::kImage, {});
}

inline std::vector<SampleLengths> DrawOmniTrace(uint64_t seed, size_t samples) {
  Random random(seed);
  std::vector<SampleLengths> trace;
  trace.reserve(samples);
  for (size_t i = 0; i < samples; ++i) trace.push_back(DrawOmniSample(random));
  return trace;
}

// A step of samples of at most `longest` llm tokens, with their pictures and videos alone.
inline StepSamples DrawVisionStep(uint64_t seed, size_t count, uint32_t longest) {
  Random random(seed);
  StepSamples step{.step = seed};
  while (step.lengths.size() < count) {
    SampleLengths sample = DrawOmniSample(random);
    std::erase_if(sample.items, [](const SampleItem& item) { return item.medium == Medium::kAudio; });
    if (sample.llm_length > longest) continue;
    step.refs.push_back({0, 0, step.refs.size()});
    step.lengths.push_back(std::move(sample));
  }
  return step;
}

// Samples of one to five tiles of 1,024 patches and some text, as a model with tiles has them.
inline std::vector<SampleLengths> DrawTileTrace(uint64_t seed, size_t samples) {
  static constexpr uint32_t kTiles[] = {1, 3, 4, 5};
  Random random(seed);
  std::vector<SampleLengths> trace;
  for (size_t i = 0; i < samples; ++i) {
    const uint32_t patches = 1024 * kTiles[random.Below(4)];
    trace.push_back(MakeOmniSample(random.Length(4.4, 0.5, 20, 600), {patches}, Medium::kImage, {}));
  }
  return trace;
}

}  // namespace evenkeel::reorder
