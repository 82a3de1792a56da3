#include "preprocess/families/qwen_omni.h"

#include <gtest/gtest.h>

#include <cmath>

#include "preprocess/audio/log_mel.h"
#include "preprocess/families/qwen2_audio.h"
#include "preprocess/families/speech.h"
#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

MediaFacts Clip(uint64_t samples) {
  MediaFacts facts;
  facts.medium = Medium::kAudio;
  facts.sample_rate = 16000;
  facts.channels = 1;
  facts.num_samples = samples;
  return facts;
}

TEST(QwenOmni, TokensAreThoseOfTransformers) {
  const nlohmann::json golden = FamilyGolden("audio");
  for (size_t i = 0; i < golden["lengths"].size(); ++i) {
    const uint32_t frames = golden["lengths"][i];
    EXPECT_EQ(Qwen2AudioTokens(frames), golden["qwen2"][i]) << frames;
    EXPECT_EQ(Qwen3OmniTokens(frames), golden["qwen3"][i]) << frames;
  }
  EXPECT_EQ(Qwen3OmniTokens(3000), 390u);  // 391 where a division rounds towards zero
}

TEST(QwenOmni, ClipsOfQwen3OmniAreAsLongAsTheyAre) {
  auto processor = LoadOrFail(AudioSpec("qwen3-omni"));
  EXPECT_EQ(*processor->Measure(Clip(16000)), (ItemLengths{100, 100, 13}));
  EXPECT_EQ(*processor->Measure(Clip(16159)), (ItemLengths{100, 100, 13}));
  EXPECT_EQ(*processor->Measure(Clip(16160)), (ItemLengths{101, 101, 14}));
  EXPECT_EQ(processor->Measure(Clip(60 * 16000))->output_rows, 780u) << "nothing is cut";
  EXPECT_TRUE(absl::IsInvalidArgument(processor->Measure(Clip(200)).status()));
  EXPECT_TRUE(processor->Measure(Clip(201)).ok());
}

TEST(QwenOmni, ClipsOfQwen2OmniArePaddedToFiveMinutes) {
  auto processor = LoadOrFail(AudioSpec("qwen2_5-omni"));
  EXPECT_EQ(*processor->Measure(Clip(30 * 16000)), (ItemLengths{3000, 30000, 750}));
  EXPECT_EQ(*processor->Measure(Clip(400 * 16000)), (ItemLengths{30000, 30000, 7500}));
  EXPECT_EQ(processor->fields(Medium::kAudio)[0].trailing, (std::vector<uint64_t>{128, 30000}));
}

TEST(QwenOmni, UnpaddedFeaturesAreThoseOfTransformers) {
  const nlohmann::json golden = FamilyGolden("audio");
  std::vector<float> samples(golden["unpadded_samples"].get<size_t>());
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i] = static_cast<float>(std::sin(static_cast<double>(i) * static_cast<double>(i) * 1e-5) * 0.5);
  }
  const size_t frames = golden["unpadded_shape"][1];
  ASSERT_EQ(frames, samples.size() / 160);
  EXPECT_EQ(frames, golden["unpadded_mask"]);
  std::vector<float> features(128 * frames);
  ASSERT_TRUE(LogMel(128).Compute(samples, features, static_cast<uint32_t>(samples.size())));
  size_t next = 0;
  for (size_t mel = 0; mel < 128; mel += 9) {
    for (size_t frame = 0; frame < frames; frame += 5) {
      const float expected = golden["unpadded_features"][next++];
      EXPECT_NEAR(features[mel * frames + frame], expected, 1e-4) << mel << " " << frame;  // its f32 path
    }
  }
}

TEST(QwenOmni, RowsOfAnUnpaddedClipAreItsFrames) {
  Item item = Make(AudioSpec("qwen3-omni"), Medium::kAudio, "audio/stereo.flac");
  ASSERT_TRUE(item.status.ok()) << item.status;
  const uint64_t frames = item.lengths.input_rows;
  EXPECT_EQ(item.fields[0].size(), 4 * 128 * frames);
  int64_t length = 0;
  std::memcpy(&length, item.fields[1].data(), sizeof(length));
  EXPECT_EQ(length, frames);
}

TEST(QwenOmni, ImagesAreReadFromTheSameFile) {
  ProcessorSpec spec = AudioSpec("qwen2_5-omni");
  spec.vision = spec.audio;
  EXPECT_NE(LoadOrFail(spec), nullptr);
}

ProcessorSpec SpecOfRule(const std::string& processor, std::string_view frame_rule) {
  ProcessorSpec spec;
  spec.vision = GoldenPath("processors/" + processor);
  spec.frame_rule = frame_rule;
  return spec;
}

MediaFacts Video(uint32_t width, uint32_t height, uint32_t frames) {
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  facts.width = width;
  facts.height = height;
  facts.num_frames = frames;
  facts.fps_num = 24;
  facts.fps_den = 1;
  return facts;
}

// Though the file bounds pictures by 3136 to 12845056 pixels.
TEST(QwenOmni, FramesHave128To768Tokens) {
  for (const std::string_view rule : {"", "qwen_vl_utils", "transformers"}) {
    for (const std::string processor : {"qwen2_5-omni", "qwen3-omni"}) {
      auto loaded = LoadOrFail(SpecOfRule(processor, rule));
      const uint32_t grids = 12 * 2 / 2;
      for (uint32_t side : {30u, 300u, 3000u}) {
        absl::StatusOr<ItemLengths> lengths = loaded->Measure(Video(side, side, 12 * 24));
        ASSERT_TRUE(lengths.ok()) << lengths.status();
        EXPECT_GE(lengths->output_rows, 121 * grids) << processor << " " << side;
        EXPECT_LE(lengths->output_rows, 768 * grids) << processor << " " << side;
        if (side == 3000) {
          EXPECT_EQ(lengths->output_rows, 27 * 27 * grids) << processor;
        }
      }
    }
  }
}

TEST(QwenOmni, AVideoHasTheSecondsThatTheJobsRateMakes) {
  for (double fps : {2.0, 1.0, 0.5}) {
    for (const std::string processor : {"qwen2_5-omni", "qwen3-omni"}) {
      ProcessorSpec spec = SpecOfRule(processor, "transformers");
      spec.fps = fps;
      Item item = Make(spec, Medium::kVideo, "video/h264.mp4");
      ASSERT_TRUE(item.status.ok()) << item.status;
      ASSERT_EQ(item.fields.size(), 3u);
      float seconds = 0;
      ASSERT_EQ(item.fields[2].size(), sizeof(seconds));
      std::memcpy(&seconds, item.fields[2].data(), sizeof(seconds));
      EXPECT_EQ(seconds, 2 / fps) << processor;
      EXPECT_EQ(LoadOrFail(spec)->fields(Medium::kVideo)[2].name, "video_second_per_grid");
    }
  }
}

TEST(QwenOmni, RatesAtWhichPositionsAreFractionsAreRefused) {
  ProcessorSpec spec = SpecOfRule("qwen3-omni", "");
  spec.fps = 3;
  const absl::Status status = Processor::LoadMedia(spec, Limits{}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find("processor.fps: 3"), std::string::npos) << status;
  spec.vision = GoldenPath("processors/qwen2_5-omni");  // whose model takes whole numbers of them
  EXPECT_TRUE(Processor::LoadMedia(spec, Limits{}).ok());
}

}  // namespace
}  // namespace evenkeel::preprocess
