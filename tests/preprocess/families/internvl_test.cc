#include "preprocess/families/internvl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "preprocess/families/family.h"
#include "tests/preprocess/families/family_golden.h"
#include "tests/preprocess/families/random_facts.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

TEST(InternVl, PixelsAreThoseOfTransformers) { ExpectPixelsOf("internvl"); }
TEST(InternVl, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("internvl"); }

TEST(InternVl, TilesAreThoseOfTransformersForEverySize) {
  auto processor = LoadOrFail(VisionSpec("internvl"));
  for (const nlohmann::json& example : FamilyGolden("canvas", "internvl")) {
    absl::StatusOr<ItemLengths> lengths = MeasureCanvas(*processor, example);
    ASSERT_TRUE(lengths.ok()) << lengths.status();
    EXPECT_EQ(lengths->input_rows, example[2]) << example;
    EXPECT_EQ(lengths->output_rows, 256 * lengths->input_rows);
    EXPECT_EQ(lengths->cost_length, 1024 * lengths->input_rows);
  }
}

// A tie goes to the later candidate in order of area while its tiles cover at most twice the picture.
TEST(InternVl, TiesAreDecidedByArea) {
  EXPECT_EQ(NearestTileGrid({448, 448}, {448, 448}, 1, 12), (TileGrid{1, 1}));
  EXPECT_EQ(NearestTileGrid({700, 700}, {448, 448}, 1, 12), (TileGrid{2, 2}));
  EXPECT_EQ(NearestTileGrid({2000, 2000}, {448, 448}, 1, 12), (TileGrid{3, 3}));
  EXPECT_EQ(NearestTileGrid({1, 4000}, {448, 448}, 1, 12), (TileGrid{1, 12}));
}

// The golden checkpoint with a file of video of its own.
class InternVlVideo : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        testing::TempDir() + "internvl_test_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(GoldenPath("processors/internvl"), folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ProcessorSpec Checkpoint(const std::string& video_file) {
    std::ofstream(folder_ + "/video_preprocessor_config.json") << video_file;
    ProcessorSpec spec;
    spec.vision = folder_;
    spec.resampler = "aten_u8";
    spec.frames = "accurate";  // as the goldens were made
    spec.wire = Wire::kF32;
    return spec;
  }
  static std::string Refusal(const ProcessorSpec& spec) {
    absl::Status status = Processor::LoadMedia(spec, Limits{}).status();
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }
  static MediaFacts Video(uint32_t frames, uint32_t fps) {
    MediaFacts facts;
    facts.medium = Medium::kVideo;
    facts.width = 64;
    facts.height = 48;
    facts.num_frames = frames;
    facts.fps_num = fps;
    facts.fps_den = 1;
    return facts;
  }
  // Of 60 frames at 10 a second; 0: the video is refused.
  static uint32_t FramesOf(const ProcessorSpec& spec) {
    auto processor = LoadOrFail(spec);
    absl::StatusOr<ItemLengths> lengths = processor->Measure(Video(60, 10));
    return lengths.ok() ? lengths->input_rows : 0;
  }

  std::string folder_;
};

TEST_F(InternVlVideo, FramesAreThoseOfTransformers) {
  int compared = 0, refused = 0;
  for (const nlohmann::json& example : FamilyGolden("framed")) {
    SCOPED_TRACE(example.dump());
    Item item = Make(Checkpoint(example["file"].dump()), Medium::kVideo,
                     "video/" + example["video"].get<std::string>());
    if (example.contains("refused")) {
      EXPECT_TRUE(absl::IsInvalidArgument(item.status)) << item.status;
      ++refused;
      continue;
    }
    ASSERT_TRUE(item.status.ok()) << item.status;
    const auto shape = example["shape"].get<std::vector<uint64_t>>();
    EXPECT_EQ(item.lengths.input_rows, shape[0]);
    EXPECT_EQ(item.lengths.output_rows, 256 * shape[0]);
    ASSERT_EQ(item.fields[0].size(), 4 * shape[0] * shape[1] * shape[2] * shape[3]);
    EXPECT_EQ(MixOf(item.fields[0]), example["hash"]);
    ++compared;
  }
  EXPECT_GE(compared, 13);
  EXPECT_GE(refused, 1);
}

TEST_F(InternVlVideo, IsReadFromTheImageProcessorsFileWhereItHasNone) {
  ProcessorSpec spec = VisionSpec("internvl");
  auto processor = LoadOrFail(spec);
  const FieldSpec& field = processor->fields(Medium::kVideo)[0];
  EXPECT_EQ(field.name, "pixel_values_videos");
  EXPECT_EQ(field.trailing, (std::vector<uint64_t>{3, 448, 448}));
  EXPECT_EQ(processor->Measure(Video(9, 10))->input_rows, 9u) << "it samples nothing";
  EXPECT_EQ(processor->Measure(Video(9, 10))->cost_length, 9u * 1024);
}

TEST_F(InternVlVideo, TheWireFormExpandsToTheSameFloats) {
  ProcessorSpec spec = Checkpoint(R"({"size": 28, "do_sample_frames": true, "num_frames": 3})");
  Item floats = Make(spec, Medium::kVideo, "video/h264.mp4");
  spec.wire = Wire::kU8;
  Item bytes = Make(spec, Medium::kVideo, "video/h264.mp4");
  ASSERT_TRUE(floats.status.ok() && bytes.status.ok()) << floats.status << bytes.status;
  std::vector<float> expanded(floats.fields[0].size() / sizeof(float));
  auto loaded = LoadOrFail(spec);
  ASSERT_TRUE(ExpandPixels(*loaded->fields(Medium::kVideo)[0].expansion, bytes.fields[0], expanded).ok());
  EXPECT_EQ(std::memcmp(expanded.data(), floats.fields[0].data(), floats.fields[0].size()), 0);
}

// As a caller of the processor may ask for other frames than its file says.
TEST_F(InternVlVideo, TheJobAsksForOtherFrames) {
  const std::string samples = R"({"do_sample_frames": true, "num_frames": 7})";
  EXPECT_EQ(FramesOf(Checkpoint("{}")), 60u) << "it samples nothing";
  EXPECT_EQ(FramesOf(Checkpoint(samples)), 7u);
  EXPECT_EQ(FramesOf(Checkpoint(R"({"do_sample_frames": true, "fps": 3})")), 18u);
  EXPECT_EQ(FramesOf(Checkpoint(R"({"do_sample_frames": true})")), 12u) << "the job's usual rate";
  EXPECT_EQ(FramesOf(Checkpoint(R"({"do_sample_frames": true, "num_frames": 61})")), 0u);

  ProcessorSpec spec = Checkpoint("{}");
  spec.fps = 4;
  EXPECT_EQ(FramesOf(spec), 24u);
  spec = Checkpoint(R"({"do_sample_frames": true, "fps": 3})");
  spec.fps = 2;
  EXPECT_EQ(FramesOf(spec), 12u) << "the job's, though it is the default";
  spec = Checkpoint("{}");
  spec.frame_rule = "transformers";
  EXPECT_EQ(FramesOf(spec), 12u) << "it is asked to sample";
  spec.frame_rule = "uniform";
  spec.max_frames = 8;
  EXPECT_EQ(FramesOf(spec), 8u);
  for (const std::string& file : {std::string("{}"), samples}) {
    spec = Checkpoint(file);
    spec.min_frames = spec.max_frames = 5;
    EXPECT_EQ(FramesOf(spec), 5u);
  }

  spec = Checkpoint("{}");
  spec.max_frames = 16;
  EXPECT_THAT(Refusal(spec), HasSubstr("has no bounds"));
  spec = Checkpoint(samples);
  spec.fps = 4;
  EXPECT_THAT(Refusal(spec), HasSubstr("num_frames: decides"));
  spec = Checkpoint("{}");
  spec.video_max_pixels = 100000;
  EXPECT_THAT(Refusal(spec), HasSubstr("mean nothing here"));
  spec = Checkpoint("{}");
  spec.frame_rule = "qwen_vl_utils";
  EXPECT_THAT(Refusal(spec), HasSubstr("of the Qwen families"));
}

TEST_F(InternVlVideo, KeysAreKnownOrErrors) {
  EXPECT_EQ(Refusal(Checkpoint(R"({"do_pad": null, "crop_size": null, "fps": null, "num_frames": null,
      "size_divisor": null, "video_metadata": null, "crop_to_patches": true, "min_patches": 1, "max_patches": 6,
      "return_metadata": false, "do_sample_frames": null, "initial_shift": 3})")),
            "");
  EXPECT_THAT(Refusal(Checkpoint(R"({"do_sharpen": true})")), HasSubstr("do_sharpen: unknown key"));
  EXPECT_EQ(Refusal(Checkpoint(R"({"size": {"height": 3, "width": 4}})")), "");
  EXPECT_THAT(Refusal(Checkpoint(R"({"size": {"shortest_edge": 3}})")), HasSubstr("is not {height, width}"));
  EXPECT_THAT(Refusal(Checkpoint(R"({"fps": 0})")), HasSubstr("fps: is not positive"));
  EXPECT_THAT(Refusal(Checkpoint(R"({"num_frames": 0})")), HasSubstr("num_frames: is 0"));
  EXPECT_THAT(Refusal(Checkpoint(R"({"initial_shift": -1})")), HasSubstr("initial_shift: is negative"));
  EXPECT_THAT(Refusal(Checkpoint(R"({"initial_shift": null})")), HasSubstr("initial_shift: is null"));
  EXPECT_THAT(Refusal(Checkpoint(R"({"do_center_crop": true})")), HasSubstr("do_center_crop"));
}

TEST_F(InternVlVideo, DigestsTellCheckpointsApart) {
  std::vector<Digest> digests;
  for (const char* file : {"{}", R"({"size": 28})", R"({"do_sample_frames": true})",
                           R"({"do_sample_frames": true, "num_frames": 8})",
                           R"({"do_sample_frames": true, "initial_shift": false})", R"({"resample": 2})",
                           R"({"image_mean": [0, 0, 0]})", R"({"size": {"height": 28, "width": 384}})",
                           R"({"size": {"height": 384, "width": 28}})", R"({"do_resize": false})"}) {
    digests.push_back(LoadOrFail(Checkpoint(file))->digest());
    for (size_t i = 0; i + 1 < digests.size(); ++i) EXPECT_NE(digests[i], digests.back()) << file << " " << i;
  }
}

TEST_F(InternVlVideo, LengthsArePlaceholdersAndRowsByEveryRule) {
  Dice dice(37);
  for (const char* rule : {"", "transformers", "uniform"}) {
    for (const char* file :
         {R"({"size": 28})", R"({"size": 28, "do_sample_frames": true, "fps": 1.7})",
          R"({"size": 28, "do_sample_frames": true, "num_frames": 6, "initial_shift": 2})"}) {
      SCOPED_TRACE(std::string(rule) + " " + file);
      ProcessorSpec spec = Checkpoint(file);
      spec.frame_rule = rule;
      auto family = LoadVisionFamily(folder_, spec, Limits{});
      ASSERT_TRUE(family.ok()) << family.status();
      for (int i = 0; i < 300; ++i) ExpectOneNumber(**family, RandomFacts(Medium::kVideo, dice));
    }
  }
}

TEST_F(InternVlVideo, FramesThatAreNotResizedHaveTheSizeOfTheFile) {
  auto processor = LoadOrFail(Checkpoint(R"({"size": {"height": 240, "width": 320}, "do_resize": false})"));
  MediaFacts facts = Video(9, 10);
  facts.width = 320, facts.height = 240;
  EXPECT_TRUE(processor->Measure(facts).ok());
  facts.width = 240, facts.height = 320;
  const absl::Status turned = processor->Measure(facts).status();
  EXPECT_TRUE(absl::IsInvalidArgument(turned));
  EXPECT_THAT(std::string(turned.message()), HasSubstr("frames of 240x320 pixels, but do_resize is false"));
}

TEST_F(InternVlVideo, IsRefusedWhereTheFolderSaysNothingOfIt) {
  std::filesystem::remove(folder_ + "/preprocessor_config.json");
  std::ofstream(folder_ + "/processor_config.json")
      << R"({"image_processor": {"image_processor_type": "GotOcr2ImageProcessor"}, "processor_class": "InternVLProcessor"})";
  ProcessorSpec spec;
  spec.vision = folder_;
  auto processor = LoadOrFail(spec);
  EXPECT_TRUE(absl::IsUnimplemented(processor->Measure(Video(9, 10)).status()));
  EXPECT_TRUE(processor->fields(Medium::kVideo).empty());
}

}  // namespace
}  // namespace evenkeel::preprocess
