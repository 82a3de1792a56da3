// What a video processor's own file says is what its frames become, and what their lengths are.
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

// A checkpoint whose image processor is that of a golden one, with another file of video.
class QwenVideoFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "qwen_video_file_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  ProcessorSpec Checkpoint(const std::string& image_processor, const std::string& video_file,
                           const std::string& rule = "transformers") {
    std::filesystem::copy_file(GoldenPath("processors/" + image_processor + "/preprocessor_config.json"),
                               folder_ + "/preprocessor_config.json",
                               std::filesystem::copy_options::overwrite_existing);
    std::ofstream(folder_ + "/video_preprocessor_config.json") << video_file;
    ProcessorSpec spec;
    spec.vision = folder_;
    spec.frame_rule = rule;
    spec.frames = "accurate";  // as the goldens were made
    spec.resampler = "aten_u8";
    spec.wire = Wire::kF32;
    return spec;
  }
  std::string Refusal(const std::string& image_processor, const std::string& video_file) {
    const ProcessorSpec spec = Checkpoint(image_processor, video_file);
    absl::Status status = Processor::LoadMedia(spec, Limits{}).status();
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  std::string folder_;
};

TEST_F(QwenVideoFile, MakesTheFramesThatTheProcessorMakes) {
  int compared = 0;
  for (const nlohmann::json& example : FamilyGolden("frames")) {
    SCOPED_TRACE(example.dump());
    const ProcessorSpec spec = Checkpoint(example["processor"], example["file"].dump());
    Item item = Make(spec, Medium::kVideo, "video/" + example["video"].get<std::string>());
    ASSERT_TRUE(item.status.ok()) << item.status;
    int64_t grid[3];
    std::memcpy(grid, item.fields[1].data(), sizeof(grid));
    EXPECT_EQ((std::vector<int64_t>(grid, grid + 3)), example["grid"].get<std::vector<int64_t>>());
    ASSERT_EQ(item.fields[0].size(), 4 * example["values"].get<size_t>());
    EXPECT_EQ(MixOf(item.fields[0]), example["hash"]);
    ++compared;
  }
  EXPECT_EQ(compared, 27);
}

// As transformers fills it up: with the video processor's own defaults, not with what the image processor's
// file says.
TEST_F(QwenVideoFile, LacksWhatItsClassHas) {
  int compared = 0;
  for (const nlohmann::json& example : FamilyGolden("frames")) {
    if (example["processor"] != "qwen3-vl" || example["file"].contains("size")) continue;
    nlohmann::json file = example["file"];
    for (const char* key : {"patch_size", "merge_size", "image_mean", "image_std"}) file.erase(key);
    const ProcessorSpec spec = Checkpoint("qwen3-vl", file.dump());
    nlohmann::json images =
        nlohmann::json::parse(std::ifstream(GoldenPath("processors/qwen3-vl/preprocessor_config.json")));
    images["image_mean"] = {0.1, 0.2, 0.3};
    images["image_std"] = {0.4, 0.5, 0.6};
    std::ofstream(folder_ + "/preprocessor_config.json") << images;
    Item item = Make(spec, Medium::kVideo, "video/" + example["video"].get<std::string>());
    ASSERT_TRUE(item.status.ok()) << item.status;
    EXPECT_EQ(MixOf(item.fields[0]), example["hash"]);
    ++compared;
  }
  EXPECT_EQ(compared, 3);
}

TEST_F(QwenVideoFile, BoundsWhatQwenVlUtilsMadeOfAFrame) {
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  facts.width = 1280;
  facts.height = 720;
  facts.num_frames = 48;
  facts.fps_num = 24;
  facts.fps_den = 1;
  auto tokens = [&](const std::string& file, const std::string& rule) {
    auto family = LoadVisionFamily(folder_, Checkpoint("qwen2-vl", file, rule), Limits{});
    EXPECT_TRUE(family.ok()) << family.status();
    return family.ok() ? (*family)->Measure(facts)->output_rows : 0;
  };
  const std::string wide = R"({"size": {"shortest_edge": 3136, "longest_edge": 12845056}})";
  const std::string narrow = R"({"size": {"shortest_edge": 3136, "longest_edge": 150528}})";
  // 20 x 36 of 28 pixels by qwen-vl-utils' own bounds; 26 x 46 without them; 10 x 18 within 150,528 pixels.
  EXPECT_EQ(tokens(wide, "qwen_vl_utils"), 2u * 20 * 36);
  EXPECT_EQ(tokens(wide, "transformers"), 2u * 26 * 46);
  EXPECT_EQ(tokens(narrow, "qwen_vl_utils"), 2u * 10 * 18);
  EXPECT_EQ(tokens(narrow, "transformers"), 2u * 10 * 18);
}

TEST_F(QwenVideoFile, KeysAreKnownOrErrors) {
  EXPECT_EQ(Refusal("qwen2-vl", R"({"do_sample_frames": false, "fps": null, "num_frames": null})"), "");
  EXPECT_THAT(Refusal("qwen2-vl", R"({"do_sharpen": true})"),
              HasSubstr("video_preprocessor_config.json: do_sharpen: unknown key"));
  EXPECT_THAT(Refusal("qwen2-vl", R"({"patch_size": 16})"), HasSubstr("patch_size: is 16"));
  EXPECT_THAT(Refusal("qwen3-omni", R"({"fps": 2})"), HasSubstr("patch_size: is missing")) << "16 and 14";
  EXPECT_THAT(Refusal("qwen2-vl", R"({"fps": 0})"), HasSubstr("fps: is not positive"));
  EXPECT_EQ(Refusal("qwen2-vl", R"({"size": {"shortest_edge": 9, "longest_edge": 8}})"), "");
  EXPECT_EQ(Refusal("qwen3-vl", R"({"min_pixels": 1, "max_pixels": 2})"), "");
  for (const char* name : {"internvl", "qwen2_5-omni", "qwen3-omni"}) {
    EXPECT_THAT(Refusal(name, R"({"do_sharpen": true})"), HasSubstr("do_sharpen: unknown key")) << name;
  }
}

// A video of 48 frames at 24 a second.
MediaFacts TwoSeconds() {
  MediaFacts facts{.medium = Medium::kVideo, .width = 56, .height = 56, .num_frames = 48};
  facts.fps_num = 24;
  facts.fps_den = 1;
  return facts;
}

TEST_F(QwenVideoFile, FixesTheNumberOfFramesByTheProcessorsRuleAlone) {
  auto grids = [&](const std::string& file, const std::string& rule) -> absl::StatusOr<uint32_t> {
    auto family = LoadVisionFamily(folder_, Checkpoint("qwen2-vl", file, rule), Limits{});
    EXPECT_TRUE(family.ok()) << family.status();
    std::vector<PlaceholderRun> runs;
    absl::Status status = (*family)->Placeholders(TwoSeconds(), runs);
    if (!status.ok()) return status;
    return runs[0].grid.t;
  };
  EXPECT_EQ(*grids(R"({"num_frames": 12})", "transformers"), 6u);
  EXPECT_EQ(*grids(R"({"num_frames": 11})", "transformers"), 6u) << "halves round to even";
  EXPECT_EQ(*grids(R"({"num_frames": 9})", "transformers"), 4u);
  EXPECT_EQ(*grids(R"({"num_frames": 12})", "qwen_vl_utils"), 2u) << "which chooses before the processor";
  EXPECT_THAT(std::string(grids(R"({"num_frames": 50})", "transformers").status().message()),
              HasSubstr("a video of 48 frames has fewer than the 50"));
}

// A job's values count also where they equal the defaults: 2 frames a second, from 4 to 768 of them.
TEST_F(QwenVideoFile, YieldsToTheJobsDefaults) {
  for (const char* name : {"qwen2-vl", "qwen3-vl"}) {
    SCOPED_TRACE(name);
    auto measured = [](const ProcessorSpec& spec) -> std::pair<uint64_t, Digest> {
      auto family = LoadVisionFamily(spec.vision, spec, Limits{});
      EXPECT_TRUE(family.ok()) << family.status();
      if (!family.ok()) return {};
      CanonicalText text("family");
      (*family)->AddTo(text);
      return {(*family)->Measure(TwoSeconds())->input_rows, text.digest()};
    };
    const auto nothing_given = measured(Checkpoint(name, R"({"do_sample_frames": true})"));
    ProcessorSpec spec = Checkpoint(name, R"({"fps": 12, "min_frames": 10, "max_frames": 20})");
    const auto file = measured(spec);
    EXPECT_GT(file.first, nothing_given.first);
    spec.fps = 2;
    const auto rate_given = measured(spec);
    EXPECT_LT(rate_given.first, file.first);
    EXPECT_GT(rate_given.first, nothing_given.first) << "the file's min_frames";
    EXPECT_NE(rate_given.second, file.second);
    spec.min_frames = 4;
    spec.max_frames = 768;
    EXPECT_EQ(measured(spec), nothing_given);
  }
}

TEST_F(QwenVideoFile, ContradictsABoundOfTheJob) {
  for (const char* name : {"qwen2-vl", "qwen3-vl"}) {
    ProcessorSpec spec = Checkpoint(name, R"({"max_frames": 20})", "transformers");
    spec.min_frames = 21;
    EXPECT_THAT(
        std::string(LoadVisionFamily(folder_, spec, Limits{}).status().message()),
        HasSubstr("processor.min_frames: min_frames, 21, is above max_frames, 20; the other bound is the "
                  "checkpoint's"));
  }
}

TEST_F(QwenVideoFile, ThatAsksForFramesOfAnotherKindLeavesThePictures) {
  struct Asked {
    const char* processor;
    const char* file;
    const char* named;
  };
  for (const Asked& asked :
       {Asked{"qwen2-vl", R"({"num_frames": 8, "fps": 2})", "num_frames: is given together"},
        {"qwen2-vl", R"({"num_frames": 1})", "num_frames: is no more than half"},
        {"qwen3-vl", R"({"num_frames": 8})", "num_frames: a fixed number"},
        {"qwen3-vl", R"({"do_sample_frames": false})", "do_sample_frames: is false"}}) {
    SCOPED_TRACE(asked.file);
    auto family = LoadVisionFamily(folder_, Checkpoint(asked.processor, asked.file), Limits{});
    ASSERT_TRUE(family.ok()) << family.status();
    EXPECT_TRUE((*family)->Measure((*family)->DummyFacts()).ok());
    const absl::Status refused = (*family)->Measure(TwoSeconds()).status();
    EXPECT_TRUE(absl::IsUnimplemented(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(asked.named));
  }
}

TEST_F(QwenVideoFile, LengthsArePlaceholdersAndRowsByEveryRule) {
  Dice dice(31);
  for (const char* name : {"qwen2-vl", "qwen2_5-omni", "qwen3-vl"}) {
    for (const char* rule : {"qwen_vl_utils", "transformers", "uniform"}) {
      for (const char* file :
           {R"({"size": {"shortest_edge": 4096, "longest_edge": 150528}, "fps": 3.7, "min_frames": 3})",
            R"({"cap_pixels_per_frame": true, "max_video_tokens": 900, "max_frames": 31})"}) {
        SCOPED_TRACE(std::string(name) + rule + file);
        auto family = LoadVisionFamily(folder_, Checkpoint(name, file, rule), Limits{});
        ASSERT_TRUE(family.ok()) << family.status();
        for (int i = 0; i < 400; ++i) ExpectOneNumber(**family, RandomFacts(Medium::kVideo, dice));
      }
    }
  }
}

TEST_F(QwenVideoFile, DeliversTheRowsOfTheLengthsByEveryRule) {
  for (const char* name : {"qwen2-vl", "qwen3-vl"}) {
    for (const char* rule : {"qwen_vl_utils", "transformers", "uniform"}) {
      for (const char* video : {"vp9.webm", "h264-variable.mkv", "h264-rotated.mp4", "mpeg4.avi"}) {
        ProcessorSpec spec =
            Checkpoint(name, R"({"size": {"shortest_edge": 784, "longest_edge": 12544}})", rule);
        spec.max_frames = 7;
        Item item = Make(spec, Medium::kVideo, std::string("video/") + video);
        ASSERT_TRUE(item.status.ok()) << name << " " << rule << " " << video << " " << item.status;
        int64_t grid[3];
        std::memcpy(grid, item.fields[1].data(), sizeof(grid));
        EXPECT_EQ(static_cast<uint64_t>(grid[0] * grid[1] * grid[2]), item.lengths.input_rows);
      }
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
