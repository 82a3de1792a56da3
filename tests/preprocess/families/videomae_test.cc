// VideoMAE, TimeSformer: clips by both kinds of processors, their patches, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

constexpr char kImageFile[] = "preprocessor_config.json";
constexpr char kVideoFile[] = "video_preprocessor_config.json";

// A folder of either processor, and of a model.
ProcessorSpec ClipSpec(const nlohmann::json& keys, const nlohmann::json& model = nullptr,
                       bool of_videos = false) {
  nlohmann::json file = keys;
  file[of_videos ? "video_processor_type" : "image_processor_type"] =
      of_videos ? "VideoMAEVideoProcessor" : "VideoMAEImageProcessor";
  ProcessorSpec spec = FolderSpec({{of_videos ? kVideoFile : kImageFile, file},
                                   {"config.json", model.is_null() ? nlohmann::json::object() : model}});
  spec.wire = Wire::kF32;
  spec.frames = "accurate";  // as the goldens were made
  return spec;
}

MediaFacts ClipOf(uint32_t frames) {
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  facts.width = 320, facts.height = 240, facts.num_frames = frames, facts.fps_num = 8, facts.fps_den = 1;
  return facts;
}

std::string VideoMaeRefusal(const ProcessorSpec& spec) {
  return std::string(Processor::LoadMedia(spec, Limits{}).status().message());
}

TEST(VideoMae, ClipsAreThoseOfTheProcessors) {
  int compared = 0;
  for (const nlohmann::json& example : FamilyGolden("clips")) {
    SCOPED_TRACE(example.dump());
    const bool of_videos = example["resampler"] == "video";
    ProcessorSpec spec = ClipSpec(example["file"], {{"patch_size", 4}}, of_videos);
    if (!of_videos) spec.resampler = example["resampler"];
    const Item item = Make(spec, Medium::kVideo, "video/" + example["video"].get<std::string>());
    ASSERT_TRUE(item.status.ok()) << item.status;
    EXPECT_EQ(item.lengths.input_rows, example["shape"][0]);
    EXPECT_EQ(MixOf(item.fields[0]), example["hash"]);
    ++compared;
  }
  EXPECT_EQ(compared, 12);
}

TEST(VideoMae, APatchSpansTwoFramesUnlessTheModelDiffers) {
  const auto lengths = [](const nlohmann::json& model, uint32_t frames) {
    return LoadOrFail(ClipSpec(nlohmann::json::object(), model))->Measure(ClipOf(frames));
  };
  EXPECT_EQ(*lengths({}, 16), (ItemLengths{8 * 196, 16, 8 * 196}));
  EXPECT_EQ(*lengths({}, 17), (ItemLengths{8 * 196, 17, 8 * 196})) << "the model leaves out the last frame";
  EXPECT_EQ(*lengths({{"tubelet_size", 4}, {"patch_size", 32}}, 8), (ItemLengths{2 * 49, 8, 2 * 49}));
  EXPECT_EQ(*lengths({{"model_type", "timesformer"}}, 8), (ItemLengths{8 * 196, 8, 8 * 196}));
  EXPECT_THAT(std::string(lengths({}, 1).status().message()),
              HasSubstr("shorter than one patch of 2 frames"));
}

TEST(VideoMae, FieldsAndFramesAreThoseOfTheProcessor) {
  ProcessorSpec spec = ClipSpec(nlohmann::json::object());
  auto processor = LoadOrFail(spec);
  ASSERT_EQ(processor->fields(Medium::kVideo).size(), 1u);
  EXPECT_EQ(processor->fields(Medium::kVideo)[0].name, "pixel_values");
  EXPECT_EQ(processor->fields(Medium::kVideo)[0].trailing, (std::vector<uint64_t>{3, 224, 224}));
  EXPECT_TRUE(processor->fields(Medium::kImage).empty());
  EXPECT_EQ(processor->Measure(ClipOf(99))->input_rows, 99u) << "it takes all that it is given";
  spec.min_frames = spec.max_frames = 16;
  EXPECT_EQ(LoadOrFail(spec)->Measure(ClipOf(99))->input_rows, 16u);
}

TEST(VideoMae, DummiesAreMeasurableByEveryRule) {
  for (const char* rule : {"", "transformers", "uniform"}) {
    ProcessorSpec spec = ClipSpec(nlohmann::json::object());
    spec.frame_rule = rule;
    spec.min_frames = spec.max_frames = 16;
    auto processor = LoadOrFail(spec);
    const MediaFacts facts = processor->DummyFacts(kVisionPhase);
    EXPECT_EQ(facts.medium, Medium::kVideo);
    const absl::StatusOr<ItemLengths> lengths = processor->Measure(facts);
    ASSERT_TRUE(lengths.ok()) << lengths.status();
    EXPECT_GT(lengths->output_rows, 0u);
  }
}

TEST(VideoMae, PicturesAreRefused) {
  auto processor = LoadOrFail(ClipSpec(nlohmann::json::object()));
  MediaFacts picture;
  picture.width = picture.height = 224;
  EXPECT_THAT(std::string(processor->Measure(picture).status().message()),
              HasSubstr("clips of frames alone"));
}

TEST(VideoMae, RefusesWhatItDoesNotImplement) {
  for (bool of_videos : {false, true}) {
    const auto refusal = [&](const nlohmann::json& keys, const nlohmann::json& model = nullptr) {
      return VideoMaeRefusal(ClipSpec(keys, model, of_videos));
    };
    EXPECT_EQ(refusal({{"do_resize", false}, {"crop_size", 48}}), "");
    EXPECT_THAT(refusal({{"do_sharpen", true}}), HasSubstr("do_sharpen: unknown key"));
    EXPECT_THAT(refusal({{"do_center_crop", false}}), HasSubstr("frames of different sizes"));
    EXPECT_THAT(refusal({{"do_pad", true}}), HasSubstr("do_pad"));
    EXPECT_THAT(refusal({}, {{"patch_size", 256}}), HasSubstr("smaller than one 256-pixel patch"));
  }
  ProcessorSpec pillow = ClipSpec(nlohmann::json::object(), {}, /*of_videos=*/true);
  pillow.resampler = "pil13";
  EXPECT_THAT(VideoMaeRefusal(pillow), HasSubstr("for torchvision only"));
}

}  // namespace
}  // namespace evenkeel::preprocess
