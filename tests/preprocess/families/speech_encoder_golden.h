// Clips made by the families of speech encoders, to compare with what tests/golden/make_audio_goldens.py wrote.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/digest.h"
#include "tests/preprocess/families/family_golden.h"
#include "tests/preprocess/families/random_facts.h"
#include "tests/preprocess/items.h"

namespace evenkeel::preprocess {

// A checkpoint of the extractor with other `keys`, and a config.json if `model` is not null.
inline ProcessorSpec EncoderSpec(const std::string& extractor, const nlohmann::json& keys = nullptr,
                                 const nlohmann::json& model = nullptr) {
  std::map<std::string, nlohmann::json> files;
  if (!model.is_null()) files["config.json"] = model;
  ProcessorSpec spec = ConfiguredSpec({{"feature_extractor_type", extractor}}, keys, files);
  spec.audio = spec.vision;
  spec.vision.clear();
  return spec;
}

inline std::string EncoderRefusal(const ProcessorSpec& spec) {
  return std::string(LoadAudioFamily(spec.audio, spec, Limits{}).status().message());
}

inline absl::StatusOr<ItemLengths> EncoderLengths(const ProcessorSpec& spec, uint64_t samples,
                                                  uint32_t rate = 16000) {
  auto family = LoadAudioFamily(spec.audio, spec, Limits{});
  EXPECT_TRUE(family.ok()) << family.status();
  MediaFacts facts;
  facts.medium = Medium::kAudio;
  facts.sample_rate = rate;
  facts.channels = 1;
  facts.num_samples = samples;
  return (*family)->Measure(facts);
}

// The golden voice of 16 kHz, whose header may claim another rate.
inline Item EncodedVoice(const ProcessorSpec& spec, uint32_t rate = 16000) {
  Item item;
  auto processor = Processor::LoadMedia(spec, Limits{});
  item.status = processor.status();
  if (!processor.ok()) return item;
  Bytes bytes = Golden("audio/voice.wav");
  std::memcpy(&bytes[24], &rate, sizeof(rate));
  absl::StatusOr<MediaFacts> facts = (*processor)->Probe(Medium::kAudio, "wav", bytes);
  item.status = facts.status();
  if (!facts.ok()) return item;
  return MakeFrom(**processor, Medium::kAudio, "wav", bytes, *facts);
}

// A WAV of floats, one of which is infinite.
inline Item EncodedInfinity(const ProcessorSpec& spec) {
  Item item;
  auto processor = Processor::LoadMedia(spec, Limits{});
  item.status = processor.status();
  if (!processor.ok()) return item;
  Bytes bytes = Golden("audio/float.wav");
  const float infinity = INFINITY;
  std::memcpy(&bytes[bytes.size() / 8 * 4], &infinity, sizeof(infinity));
  absl::StatusOr<MediaFacts> facts = (*processor)->Probe(Medium::kAudio, "wav", bytes);
  item.status = facts.status();
  if (!facts.ok()) return item;
  return MakeFrom(**processor, Medium::kAudio, "wav", bytes, *facts);
}

// The largest difference between the begin of the item's first field and the golden; infinity where it is shorter.
inline double WorstDifference(const Item& item, const std::string& golden) {
  const std::vector<float> expected = GoldenFloats("audio/" + golden + ".f32");
  EXPECT_TRUE(item.status.ok()) << item.status;
  if (item.fields.empty() || item.fields[0].size() < expected.size() * sizeof(float)) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    float value;
    std::memcpy(&value, &item.fields[0][i * sizeof(float)], sizeof(value));
    worst = std::max(worst, std::abs(double{value} - expected[i]));
  }
  return worst;
}

inline std::string DigestOfFeatures(const Item& item) {
  return item.fields.empty() ? "" : DigestOf(item.fields[0]).Hex();
}

// Lengths of headers and of fields are one number.
inline void ExpectConsistentLengths(const ProcessorSpec& spec) {
  auto family = LoadAudioFamily(spec.audio, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  EXPECT_TRUE((*family)->styles().empty()) << "clips have no place in a text";
  EXPECT_TRUE((*family)->Measure((*family)->DummyFacts()).ok());
  Dice dice(5);
  for (int i = 0; i < 300; ++i) ExpectOneNumber(**family, RandomFacts(Medium::kAudio, dice));
}

}  // namespace evenkeel::preprocess
