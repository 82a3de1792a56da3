#include "preprocess/families/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/status/status.h"
#include "preprocess/families/family.h"
#include "preprocess/processor.h"
#include "tests/preprocess/files.h"
#include "tests/preprocess/items.h"

namespace evenkeel::preprocess {
namespace {

using testing::HasSubstr;

class ConfigFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "config_file_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& text, const std::string& name = "preprocessor_config.json") {
    std::ofstream(folder_ + "/" + name) << text;
  }
  // The message with which a processor of this configuration is refused; empty where it is not.
  std::string Refusal(const std::string& keys, const std::string& type = "Qwen2VLImageProcessor") {
    Write("{\"image_processor_type\": \"" + type + "\", " + keys + "}");
    ProcessorSpec spec;
    spec.vision = folder_;
    absl::Status status = Processor::LoadMedia(spec, Limits{}).status();
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  }

  std::string folder_;
};

TEST_F(ConfigFileTest, EveryKeyIsConsumedPinnedInertOrAnError) {
  EXPECT_EQ(Refusal("\"patch_size\": 14, \"do_resize\": true, \"processor_class\": \"Qwen2VLProcessor\""),
            "");
  EXPECT_THAT(Refusal("\"do_sharpen\": true"),
              HasSubstr("preprocessor_config.json: do_sharpen: unknown key"));
  EXPECT_THAT(Refusal("\"do_pad\": true"), HasSubstr("do_pad: is true; only false is implemented"));
  EXPECT_THAT(Refusal("\"resample\": 6"), HasSubstr("resample"));
  EXPECT_THAT(Refusal("\"size\": {\"height\": 3}"), HasSubstr("size.height: unknown key"));
}

TEST_F(ConfigFileTest, RescalingAndNormalisingAreDoneAsTheFileSays) {
  auto table = [&](const std::string& keys, const std::string& resampler) {
    Write("{\"image_processor_type\": \"Qwen2VLImageProcessor\", \"image_mean\": [0.5, 0.25, 0], " + keys +
          "}");
    ProcessorSpec spec;
    spec.vision = folder_;
    spec.resampler = resampler;
    spec.wire = Wire::kU8;
    auto family = LoadVisionFamily(folder_, spec, Limits{});
    EXPECT_TRUE(family.ok()) << family.status();
    return family.ok() ? (*family)->fields(Medium::kImage)[0].expansion->table : std::vector<float>(3 * 256);
  };
  const std::string kept = "\"do_rescale\": false, \"image_std\": [0.5, 2, 4]";
  const std::string scaled = "\"do_normalize\": false";
  const std::vector<float> kept_by[] = {table(kept, "pil13"), table(kept, "aten_u8")};
  const std::vector<float> scaled_by_pil = table(scaled, "pil13"), scaled_by_torch = table(scaled, "aten_u8");
  int other_rounding = 0;
  for (int byte = 0; byte < 256; ++byte) {
    SCOPED_TRACE(byte);
    const auto value = static_cast<float>(byte);
    for (const std::vector<float>& values : kept_by) {
      EXPECT_EQ(values[byte], (value - 0.5f) / 0.5f);
      EXPECT_EQ(values[256 + byte], (value - 0.25f) / 2);
      EXPECT_EQ(values[512 + byte], value / 4);
    }
    EXPECT_EQ(scaled_by_pil[256 + byte], static_cast<float>(byte * (1.0 / 255)));
    EXPECT_EQ(scaled_by_torch[256 + byte], value * static_cast<float>(1.0 / 255));
    other_rounding += scaled_by_pil[byte] != scaled_by_torch[byte];
  }
  EXPECT_GT(other_rounding, 0);
  for (const char* resampler : {"pil", "pil13", "aten_u8"}) {
    const std::vector<float> bytes = table("\"do_normalize\": false, \"do_rescale\": false", resampler);
    for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], static_cast<float>(i % 256)) << resampler;
  }
}

TEST_F(ConfigFileTest, ValuesOfAnotherTypeOrRangeAreErrors) {
  EXPECT_THAT(Refusal("\"patch_size\": \"14\""), HasSubstr("patch_size: is \"14\", not a whole number"));
  EXPECT_THAT(Refusal("\"patch_size\": 14.5"), HasSubstr("patch_size"));
  EXPECT_THAT(Refusal("\"patch_size\": -1"), HasSubstr("patch_size"));
  EXPECT_THAT(Refusal("\"patch_size\": 0"), HasSubstr("not between 1 and"));
  EXPECT_THAT(Refusal("\"image_mean\": [1, 2]"), HasSubstr("image_mean: is [1,2], not a list of 3 numbers"));
  EXPECT_THAT(Refusal("\"image_mean\": [1, 2, \"x\"]"), HasSubstr("image_mean"));
  EXPECT_THAT(Refusal("\"image_mean\": \"x\""), HasSubstr("image_mean: is \"x\", not a list of 3 numbers"));
  EXPECT_THAT(Refusal("\"image_std\": 0"), HasSubstr("image_std: has a zero"));
  EXPECT_EQ(Refusal("\"image_mean\": 0.5, \"image_std\": 1"), "");
  EXPECT_THAT(Refusal("\"image_std\": [1, 0, 1]"), HasSubstr("image_std: has a zero"));
  EXPECT_THAT(Refusal("\"size\": 3"), HasSubstr("size: is 3, not an object"));
  EXPECT_THAT(Refusal("\"rescale_factor\": \"x\""), HasSubstr("rescale_factor"));
  EXPECT_EQ(Refusal("\"min_pixels\": 9000, \"max_pixels\": 8000"), "") << "transformers reads it";
  EXPECT_EQ(Refusal("\"min_pixels\": null, \"crop_size\": {\"height\": 3}"), "");
}

TEST_F(ConfigFileTest, ALeastAboveTheMostIsAnErrorWhereTheJobSaysEither) {
  ProcessorSpec spec;
  spec.vision = folder_;
  spec.min_pixels = 2000000;
  Write(R"({"image_processor_type": "Qwen2VLImageProcessor"})");
  EXPECT_THAT(std::string(LoadVisionFamily(folder_, spec, Limits{}).status().message()),
              HasSubstr("above max_pixels"));
}

TEST_F(ConfigFileTest, FiltersHaveTorchvisionsNamesByItsPathAlone) {
  auto refusal = [&](const std::string& name, const std::string& resampler) {
    Write(R"({"image_processor_type": "Qwen2VLImageProcessor", "resample": ")" + name + "\"}");
    ProcessorSpec spec;
    spec.vision = folder_;
    spec.resampler = resampler;
    return std::string(LoadVisionFamily(folder_, spec, Limits{}).status().message());
  };
  for (const char* name : {"bicubic", "bilinear", "lanczos"}) EXPECT_EQ(refusal(name, "aten_u8"), "");
  EXPECT_EQ(refusal("bilinear", "pil13"), "");
  EXPECT_THAT(refusal("bicubic", "pil13"),
              HasSubstr("resample: 'bicubic' is torchvision's name of a filter"));
  EXPECT_THAT(refusal("BICUBIC", "aten_u8"), HasSubstr("resample: 'BICUBIC' is not implemented"));
  EXPECT_THAT(refusal("nearest", "aten_u8"), HasSubstr("resample: 'nearest' is not implemented"));
}

TEST_F(ConfigFileTest, NullIsNotTheDefaultWhereTransformersTakesItAsAValue) {
  for (std::string key : {"do_resize", "do_rescale", "do_normalize", "resample", "image_mean", "image_std",
                          "rescale_factor", "patch_size", "merge_size", "temporal_patch_size"}) {
    EXPECT_THAT(Refusal("\"" + key + "\": null"), HasSubstr(key + ": is null"));
  }
  for (std::string key : {"do_center_crop", "do_pad", "size", "data_format", "device"}) {
    EXPECT_EQ(Refusal("\"" + key + "\": null"), "");
  }
}

TEST_F(ConfigFileTest, ASizeNamesBothBoundsUnlessTheyStandBesideIt) {
  EXPECT_EQ(Refusal("\"size\": {\"shortest_edge\": 784, \"longest_edge\": 7840}"), "");
  EXPECT_THAT(Refusal("\"size\": {\"shortest_edge\": 784}"), HasSubstr("size.longest_edge: is missing"));
  EXPECT_EQ(Refusal("\"size\": {\"shortest_edge\": 784}, \"max_pixels\": 7840"), "");
  // As releases before 4.49 saved it.
  const std::string inner = "\"size\": {\"min_pixels\": 784, \"max_pixels\": 7840}";
  EXPECT_EQ(Refusal(inner + ", \"min_pixels\": 784, \"max_pixels\": 7840"), "");
  EXPECT_THAT(Refusal(inner), HasSubstr("size.shortest_edge"));
}

TEST_F(ConfigFileTest, AFolderWithoutAVideoProcessorTakesPicturesAlone) {
  for (std::string processor_class :
       {"Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor", "Qwen2_5OmniProcessor"}) {
    SCOPED_TRACE(processor_class);
    Write(R"({"image_processor": {"image_processor_type": "Qwen2VLImageProcessor"}, "processor_class": ")" +
              processor_class + "\"}",
          "processor_config.json");
    ProcessorSpec spec;
    spec.vision = folder_;
    auto processor = Processor::LoadMedia(spec, Limits{});
    ASSERT_TRUE(processor.ok()) << processor.status();
    MediaFacts facts;
    facts.width = facts.height = 280;
    EXPECT_EQ((*processor)->Measure(facts)->output_rows, 100u);
    EXPECT_TRUE((*processor)->fields(Medium::kVideo).empty());
    facts.medium = Medium::kVideo;
    const absl::Status video = (*processor)->Measure(facts).status();
    EXPECT_TRUE(absl::IsUnimplemented(video)) << video;
    EXPECT_THAT(std::string(video.message()), HasSubstr("has no video_preprocessor_config.json"));
  }
}

// Which class transformers takes was compared with 5.23 and 4.57: AutoVideoProcessor.from_pretrained of a
// folder with this file and a config.json of the model.
TEST_F(ConfigFileTest, RefusesVideosThatTransformersReadsByAnotherClass) {
  const auto video = [&](const std::string& types) {
    Write(R"({"patch_size": 16, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], )" + types +
          R"(, "processor_class": "Qwen3VLProcessor"})");
    ProcessorSpec spec;
    spec.vision = folder_;
    auto processor = Processor::LoadMedia(spec, Limits{});
    EXPECT_TRUE(processor.ok()) << processor.status();
    MediaFacts facts{.medium = Medium::kVideo, .width = 320, .height = 320, .num_frames = 50};
    facts.fps_num = 25, facts.fps_den = 1;
    return (*processor)->Measure(facts).status();
  };
  const absl::Status of_qwen2 = video(R"("image_processor_type": "Qwen2VLImageProcessor")");
  EXPECT_TRUE(absl::IsUnimplemented(of_qwen2)) << of_qwen2;
  EXPECT_THAT(std::string(of_qwen2.message()), HasSubstr("Qwen2VLVideoProcessor"));
  EXPECT_THAT(std::string(of_qwen2.message()), HasSubstr("video_preprocessor_config.json"));
  EXPECT_TRUE(absl::IsUnimplemented(video(
      R"("image_processor_type": "Qwen2VLImageProcessorFast", "video_processor_type": "Qwen2VLVideoProcessor")")));
  EXPECT_TRUE(video(R"("image_processor_type": "Qwen2VLImageProcessorFast")").ok());
  EXPECT_TRUE(video(
                  R"("image_processor_type": "Qwen2VLImageProcessor",
                     "video_processor_type": "Qwen3VLVideoProcessor")")
                  .ok());
}

// Pictures are converted all the same, but transparency is not blended.
TEST_F(ConfigFileTest, ConversionThatIsLeftToTheCallerDropsTransparency) {
  auto pixels = [&](const std::string& keys, const std::string& alpha) {
    Write(R"({"image_processor_type": "SiglipImageProcessor")" + keys + "}");
    ProcessorSpec spec;
    spec.vision = folder_;
    spec.resampler = "aten_u8";
    spec.alpha = alpha;
    Item item = Make(spec, Medium::kImage, "pictures/rgba.png");
    EXPECT_TRUE(item.status.ok()) << item.status;
    return item.fields[0];
  };
  const Bytes dropped = pixels("", "drop");
  EXPECT_NE(pixels("", ""), dropped);
  EXPECT_NE(pixels(R"(, "do_convert_rgb": true)", ""), dropped);
  EXPECT_EQ(pixels(R"(, "do_convert_rgb": false)", ""), dropped);
  EXPECT_EQ(pixels(R"(, "do_convert_rgb": null)", ""), dropped);
  EXPECT_EQ(pixels(R"(, "do_convert_rgb": false)", "white"), pixels("", ""));
}

TEST_F(ConfigFileTest, DefaultToSquareSaysWhatANumberIs) {
  const std::string whole = "\"size\": 224, \"do_center_crop\": ";
  const std::string varied = "do_center_crop: is false, and size is not {height, width}";
  EXPECT_THAT(Refusal(whole + "false", "CLIPImageProcessor"), HasSubstr(varied));
  EXPECT_THAT(Refusal(whole + "null", "CLIPImageProcessor"), HasSubstr(varied));  // no is no
  EXPECT_EQ(Refusal(whole + "false, \"default_to_square\": true", "CLIPImageProcessor"), "");
  EXPECT_EQ(Refusal("\"size\": 224, \"default_to_square\": true", "SiglipImageProcessor"), "");
  EXPECT_THAT(Refusal("\"size\": 224", "SiglipImageProcessor"), HasSubstr(varied));
  EXPECT_EQ(Refusal("\"size\": 448", "GotOcr2ImageProcessor"), "");
  EXPECT_THAT(Refusal("\"size\": 448, \"default_to_square\": null", "GotOcr2ImageProcessor"),
              HasSubstr("size: is not {height, width}"));
}

TEST_F(ConfigFileTest, SizesAreOneOfTheSetsThatTransformersKnows) {
  auto size = [&](const std::string& members, const std::string& more = "") {
    return Refusal("\"size\": {" + members + "}" + more, "CLIPImageProcessor");
  };
  const std::string none = "size: must be {height, width}, {shortest_edge}";
  EXPECT_EQ(size(R"("shortest_edge": 64, "longest_edge": 100)"), "");
  EXPECT_EQ(size(R"("shortest_edge": 64, "longest_edge": null)"), "");
  EXPECT_EQ(size(R"("max_height": 64, "max_width": 100)"), "");
  EXPECT_EQ(size(R"("height": 64, "width": 100)", R"(, "do_center_crop": false)"), "");
  EXPECT_THAT(size(R"("longest_edge": 100)"), HasSubstr(none));
  EXPECT_THAT(size(R"("height": 100)"), HasSubstr(none));
  EXPECT_THAT(size(R"("width": 100)"), HasSubstr(none));
  EXPECT_THAT(size(R"("max_width": 100)"), HasSubstr(none));
  EXPECT_THAT(size(R"("height": 100, "width": 100, "shortest_edge": 100)"), HasSubstr(none));
  EXPECT_THAT(size(R"("min_pixels": 100, "max_pixels": 1000)"), HasSubstr("size.m"));
  EXPECT_THAT(size(R"("shortest_edge": 64)", R"(, "crop_size": {"shortest_edge": 64})"),
              HasSubstr("crop_size: is not {height, width}"));
  EXPECT_THAT(Refusal(R"("do_center_crop": true)", "SiglipImageProcessor"),
              HasSubstr("do_center_crop: is true, but crop_size is missing"));
  EXPECT_EQ(Refusal(R"("size": [64, 100], "do_center_crop": false)", "CLIPImageProcessor"), "");
  EXPECT_THAT(Refusal(R"("size": [64])", "CLIPImageProcessor"),
              HasSubstr("size: is [64], not a list of 2 whole numbers"));
  EXPECT_THAT(Refusal(R"("size": [64, 64.5])", "CLIPImageProcessor"),
              HasSubstr("size: is 64.5, not a whole number"));
  EXPECT_THAT(Refusal(R"("crop_size": [64, 0])", "CLIPImageProcessor"),
              HasSubstr("crop_size: is 0, not between"));
  for (const char* type : {"CLIPImageProcessor", "SiglipImageProcessor", "LlavaImageProcessor"}) {
    EXPECT_EQ(Refusal(R"("do_pad": false)", type), "");
  }
  // As bytes a picture has a largest side.
  const std::string large = R"("height": 1025, "width": 64)";
  EXPECT_THAT(size(large, R"(, "do_center_crop": false)"), HasSubstr("processor.wire"));
}

TEST_F(ConfigFileTest, WhatIsNotResizedMustFit) {
  Write(R"({"image_processor_type": "Qwen2VLImageProcessor", "processor_class": "Qwen2VLProcessor",
            "do_resize": false})");
  ProcessorSpec spec;
  spec.vision = folder_;
  auto processor = Processor::LoadMedia(spec, Limits{});
  ASSERT_TRUE(processor.ok()) << processor.status();
  MediaFacts facts{.medium = Medium::kImage, .width = 56, .height = 280};
  EXPECT_EQ((*processor)->Measure(facts)->output_rows, 20u);
  facts.width = 57;
  absl::Status status = (*processor)->Measure(facts).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("57x280 pixels, where do_resize is false and sides must be multiples of 28"));
  // Its videos are read from the same file here; qwen-vl-utils would resize them first.
  spec.frame_rule = "transformers";
  processor = Processor::LoadMedia(spec, Limits{});
  ASSERT_TRUE(processor.ok()) << processor.status();
  facts = {.medium = Medium::kVideo, .width = 56, .height = 280, .num_frames = 50};
  facts.fps_num = 25, facts.fps_den = 1;
  EXPECT_EQ((*processor)->Measure(facts)->output_rows, 20u * 2);
  facts.height = 281;
  EXPECT_TRUE(absl::IsInvalidArgument((*processor)->Measure(facts).status()));

  Write(R"({"image_processor_type": "SiglipImageProcessor", "size": {"height": 64, "width": 96},
            "do_resize": false})");
  processor = Processor::LoadMedia(spec, Limits{});
  ASSERT_TRUE(processor.ok()) << processor.status();
  facts = {.medium = Medium::kImage, .width = 96, .height = 64};
  EXPECT_EQ((*processor)->Measure(facts)->input_rows, 1u);
  facts = {.medium = Medium::kImage, .width = 64, .height = 96};
  status = (*processor)->Measure(facts).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a picture of 64x96 pixels, but do_resize is false and size is 96x64"));
}

TEST_F(ConfigFileTest, TheProcessorOfInternVlAsksForTilesWhateverTheFileSays) {
  for (auto [keys, rows] :
       {std::pair("", 1u),
        {", \"crop_to_patches\": true", 3u},
        {", \"processor_class\": \"InternVLProcessor\"", 3u},
        {", \"processor_class\": \"InternVLProcessor\", \"crop_to_patches\": false", 3u}}) {
    EXPECT_EQ(
        Refusal(std::string("\"size\": {\"height\": 448, \"width\": 448}") + keys, "GotOcr2ImageProcessor"),
        "");
    ProcessorSpec spec;
    spec.vision = folder_;
    MediaFacts facts;
    facts.width = 896, facts.height = 448;
    EXPECT_EQ((*Processor::LoadMedia(spec, Limits{}))->Measure(facts)->input_rows, rows) << keys;
  }
}

TEST_F(ConfigFileTest, AnUnknownProcessorIsNamed) {
  Write("{\"image_processor_type\": \"FuyuImageProcessor\"}");
  ProcessorSpec spec;
  spec.vision = folder_;
  absl::Status status = Processor::LoadMedia(spec, Limits{}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("'FuyuImageProcessor' is not implemented; these are: BitImageProcessor, BlipImageProcessor, "
                "CLIPImageProcessor of LlavaProcessor, CLIPImageProcessor, "));
  Write("{\"feature_extractor_type\": \"FlavaFeatureExtractor\"}");
  status = Processor::LoadMedia(spec, Limits{}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("feature_extractor_type: 'FlavaFeatureExtractor' is not an implemented image processor; "
                "implemented are: BitImageProcessor, BlipImageProcessor, "));
  spec = ProcessorSpec{};
  spec.audio = folder_;
  EXPECT_TRUE(absl::IsInvalidArgument(Processor::LoadMedia(spec, Limits{}).status()));
}

TEST_F(ConfigFileTest, AFileThatNamesNoProcessorIsReadAsItsModels) {
  const std::string keys = "{\"size\": 64, \"image_mean\": [0.5, 0.5, 0.5]";
  auto load = [&](const std::string& type, const std::string& model) {
    Write(keys + type + "}");
    Write(model, "config.json");
    ProcessorSpec spec;
    spec.vision = folder_;
    return Processor::LoadMedia(spec, Limits{});
  };
  auto vit = load("", "{\"model_type\": \"vit\"}");
  ASSERT_TRUE(vit.ok()) << vit.status();
  EXPECT_EQ((*vit)->digest(), (*load(", \"image_processor_type\": \"ViTImageProcessor\"", "{}"))->digest());
  auto clip = load("", "{\"model_type\": \"clip\"}");
  ASSERT_TRUE(clip.ok()) << clip.status();
  EXPECT_EQ((*clip)->digest(),
            (*load(", \"feature_extractor_type\": \"CLIPFeatureExtractor\"", "{}"))->digest());
  for (const char* unknown : {"{\"model_type\": \"fuyu\"}", "{}"}) {
    EXPECT_THAT(std::string(load("", unknown).status().message()),
                HasSubstr("image_processor_type: is missing; it must name the processor's class"));
  }
  EXPECT_THAT(std::string(load("", "{\"model_type\": [\"vit\"]}").status().message()),
              HasSubstr("/config.json: model_type: is [\"vit\"], not a string"));
}

TEST_F(ConfigFileTest, AWrongValueInTheModelsFileIsAnError) {
  const auto refusal = [&](const std::string& keys, const std::string& model) {
    Write(model, "config.json");
    return Refusal(keys, "ViTImageProcessor");
  };
  EXPECT_EQ(refusal("\"size\": 64", R"({"patch_size": null, "vision_config": null, "no such key": [1]})"),
            "");
  EXPECT_EQ(refusal("\"size\": 64", R"({"patch_size": [16, 16], "vision_config": {"patch_size": [8, 8]}})"),
            "");
  EXPECT_THAT(refusal("\"size\": 64", R"({"patch_size": "16"})"),
              HasSubstr("/config.json: patch_size: is \"16\", not a whole number"));
  EXPECT_THAT(refusal("\"size\": 64", R"({"patch_size": [16, 8]})"),
              HasSubstr("/config.json: patch_size: is [16,8], not a whole number"));
  EXPECT_THAT(refusal("\"size\": 64", R"({"vision_config": 16})"),
              HasSubstr("/config.json: vision_config: is 16, not an object"));
  EXPECT_THAT(refusal("\"size\": 64", R"({"vision_config": {"patch_size": 1000}})"),
              HasSubstr("/config.json: vision_config.patch_size: is 1000, not between 1 and 256"));
}

// Which transformers only compares areas with.
TEST_F(ConfigFileTest, BoundsOfPixelsMayBeWrittenAsFloatsWhereTheyAreWhole) {
  EXPECT_EQ(Refusal("\"min_pixels\": 3136.0, \"max_pixels\": 12845056.0"), "");
  EXPECT_EQ(Refusal("\"size\": {\"shortest_edge\": 3136.0, \"longest_edge\": 1.2845056e7}"), "");
  EXPECT_THAT(Refusal("\"min_pixels\": 3136.5"), HasSubstr("min_pixels: is 3136.5, not a whole number"));
  EXPECT_THAT(Refusal("\"min_pixels\": -3136.0"), HasSubstr("min_pixels: is -3136.0, not a whole number"));
  EXPECT_THAT(Refusal("\"patch_size\": 14.0"), HasSubstr("patch_size: is 14.0, not a whole number"));
  EXPECT_THAT(Refusal("\"size\": 224.0", "CLIPImageProcessor"),
              HasSubstr("size: is 224.0, not a whole number"));
  for (const char* type : {"Qwen2VLProcessor", "Qwen3VLProcessor", "Qwen2_5OmniProcessor"}) {
    const std::string video = std::string("\"processor_class\": \"") + type +
                              "\", \"patch_size\": 16, \"size\": {\"shortest_edge\": 4096.0, "
                              "\"longest_edge\": 25165824.0}";
    Write("{" + video + "}", "video_preprocessor_config.json");
    EXPECT_EQ(Refusal(video), "");
  }
}

TEST_F(ConfigFileTest, AnImageProcessorThatIsStillCalledAFeatureExtractorIsRead) {
  const std::string clip =
      "{\"feature_extractor_type\": \"CLIPFeatureExtractor\", \"size\": 336, \"crop_size\": 336, "
      "\"resample\": 3}";
  Write(clip);
  Write("{\"model_type\": \"clip\", \"vision_config\": {\"patch_size\": 14}}", "config.json");
  ProcessorSpec spec;
  spec.vision = folder_;
  auto processor = Processor::LoadMedia(spec, Limits{});
  ASSERT_TRUE(processor.ok()) << processor.status();
  MediaFacts facts;
  facts.width = facts.height = 500;
  EXPECT_EQ((*processor)->Measure(facts)->output_rows, 24u * 24);
  EXPECT_EQ((*processor)->fields(Medium::kImage)[0].trailing, (std::vector<uint64_t>{3 * 336 * 336}));

  Write("{\"feature_extractor_type\": \"WhisperFeatureExtractor\"}");
  EXPECT_THAT(
      std::string(Processor::LoadMedia(spec, Limits{}).status().message()),
      HasSubstr("feature_extractor_type: 'WhisperFeatureExtractor' is not an implemented image processor"));
}

TEST_F(ConfigFileTest, WhatIsNotAJsonObjectIsAnError) {
  for (std::string text : {"", "[]", "{", "{\"a\": 1", "null", "{\"a\": \"\xff\"}"}) {
    Write(text);
    EXPECT_TRUE(absl::IsInvalidArgument(ConfigFile::ReadImageProcessor(CheckpointFolder(folder_)).status()))
        << text;
  }
  Write("{\"a\": " + std::string(100, '[') + std::string(100, ']') + "}");
  EXPECT_TRUE(absl::IsInvalidArgument(ConfigFile::ReadImageProcessor(CheckpointFolder(folder_)).status()));
}

TEST_F(ConfigFileTest, MissingFilesAreNotFound) {
  EXPECT_TRUE(absl::IsNotFound(ConfigFile::ReadImageProcessor(CheckpointFolder(folder_)).status()));
  Write("{\"feature_extractor\": {}}", "processor_config.json");
  EXPECT_TRUE(absl::IsNotFound(ConfigFile::ReadImageProcessor(CheckpointFolder(folder_)).status()));
  EXPECT_TRUE(ConfigFile::ReadFeatureExtractor(CheckpointFolder(folder_)).ok());
}

TEST_F(ConfigFileTest, TheObjectInTheProcessorsFileGoesBeforeAFileOfItsOwn) {
  Write("{\"a\": 1}");
  EXPECT_EQ(ConfigFile::ReadImageProcessor(CheckpointFolder(folder_))->Uint("a", 0, 0, 9), 1u);
  Write("{\"a\": 2}", "video_preprocessor_config.json");
  EXPECT_EQ(ConfigFile::ReadVideoProcessor(CheckpointFolder(folder_))->Uint("a", 0, 0, 9), 2u);
  Write("{\"image_processor\": {\"a\": 3}, \"processor_class\": \"X\"}", "processor_config.json");
  EXPECT_EQ(ConfigFile::ReadImageProcessor(CheckpointFolder(folder_))->Uint("a", 0, 0, 9), 3u);
  EXPECT_EQ(ConfigFile::ReadImageProcessor(CheckpointFolder(folder_))->Text("processor_class", ""), "X");
  EXPECT_EQ(ConfigFile::ReadVideoProcessor(CheckpointFolder(folder_))->Uint("a", 0, 0, 9), 2u);
}

TEST_F(ConfigFileTest, KeysOfTheProcessorsOwnFileAreKnownOrErrors) {
  Write("{\"image_seq_length\": 256, \"frobnicate\": 1}", "processor_config.json");
  Write("{\"image_processor_type\": \"GotOcr2ImageProcessor\", \"processor_class\": \"InternVLProcessor\"}");
  ProcessorSpec spec;
  spec.vision = folder_;
  absl::Status status = Processor::LoadMedia(spec, Limits{}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("processor_config.json: frobnicate: unknown key"));
}

TEST_F(ConfigFileTest, PositionsASecondComeFromTheModelsOwnFile) {
  Write(
      "{\"image_processor_type\": \"Qwen2VLImageProcessor\", \"processor_class\": \"Qwen2_5_VLProcessor\"}");
  ProcessorSpec spec;
  auto tokens = [&] { return (*LoadVisionFamily(folder_, spec, Limits{}))->tokens_per_second(); };
  EXPECT_EQ(tokens(), 2u);
  Write("{\"vision_config\": {\"tokens_per_second\": 4}}", "config.json");
  EXPECT_EQ(tokens(), 4u);
}

TEST_F(ConfigFileTest, SharedProcessorFoldersLoad) {
  std::string shared = SharedFolder();
  if (shared.empty()) GTEST_SKIP() << "no folder of media beside the tree";
  for (std::string name : {"internvl3", "llava-1.5", "qwen2-vl", "qwen2_5-vl", "qwen3-vl"}) {
    ProcessorSpec spec;
    spec.vision = shared + "/processors/" + name;
    EXPECT_TRUE(Processor::LoadMedia(spec, Limits{}).ok()) << name;
  }
  for (std::string name : {"qwen2-audio", "whisper-large-v3"}) {
    ProcessorSpec spec;
    spec.audio = shared + "/processors/" + name;
    EXPECT_TRUE(Processor::LoadMedia(spec, Limits{}).ok()) << name;
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
