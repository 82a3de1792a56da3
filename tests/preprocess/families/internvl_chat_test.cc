// InternVL's own repositories: tiles by config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

// As the published checkpoints, whose image processor's file names CLIP's.
ProcessorSpec ChatSpec(const nlohmann::json& keys) {
  nlohmann::json model = {{"model_type", "internvl_chat"},
                          {"force_image_size", 448},
                          {"downsample_ratio", 0.5},
                          {"dynamic_image_size", true},
                          {"use_thumbnail", true},
                          {"min_dynamic_patch", 1},
                          {"max_dynamic_patch", 12},
                          {"pad2square", false},
                          {"vision_config", {{"image_size", 448}, {"patch_size", 14}}}};
  for (const auto& [key, value] : keys.items()) model[key] = value;
  return FolderSpec(
      {{"config.json", model},
       {"preprocessor_config.json",
        {{"feature_extractor_type", "CLIPFeatureExtractor"}, {"size", 448}, {"crop_size", 448}}}});
}

TEST(InternVlChat, TilesAreThoseOfTheCheckpointsInTransformers) {
  auto processor = LoadOrFail(ChatSpec({}));
  for (const nlohmann::json& example : FamilyGolden("canvas", "internvl")) {
    absl::StatusOr<ItemLengths> lengths = MeasureCanvas(*processor, example);
    ASSERT_TRUE(lengths.ok()) << lengths.status();
    EXPECT_EQ(lengths->input_rows, example[2]) << example;
    EXPECT_EQ(lengths->output_rows, 256 * lengths->input_rows);
  }
}

TEST(InternVlChat, EveryWireFormHasTheSameValues) {
  ExpectWireFormsAgree(ChatSpec({{"force_image_size", 28}}), "pictures/wide.png", {"", "pil", "pil13"});
}

TEST(InternVlChat, TheModelsFileDecidesAboutTiles) {
  MediaFacts facts;
  facts.width = 896, facts.height = 448;
  const auto tiles = [&](const nlohmann::json& keys) {
    return LoadOrFail(ChatSpec(keys))->Measure(facts)->input_rows;
  };
  EXPECT_EQ(tiles({}), 3u);
  EXPECT_EQ(tiles({{"use_thumbnail", false}}), 2u);
  EXPECT_EQ(tiles({{"dynamic_image_size", false}}), 1u);
  EXPECT_EQ(tiles({{"max_dynamic_patch", 1}}), 1u);
}

TEST(InternVlChat, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys, const std::string& resampler = "") {
    ProcessorSpec spec = ChatSpec(keys);
    spec.resampler = resampler;
    return std::string(Processor::LoadMedia(spec, Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"template", "internvl2_5"}}), "");
  EXPECT_EQ(refusal({{"min_dynamic_patch", 2}}), "");
  EXPECT_THAT(refusal({}, "aten_u8"), HasSubstr("works through Pillow only"));
  EXPECT_THAT(refusal({{"pad2square", true}}), HasSubstr("pad2square: is true; only false"));
  EXPECT_THAT(refusal({{"min_dynamic_patch", 13}}), HasSubstr("min_dynamic_patch: is above"));
  EXPECT_THAT(refusal({{"min_dynamic_patch", 2}, {"max_dynamic_patch", 3}}),
              HasSubstr("order of a hash table"));
  EXPECT_THAT(refusal({{"downsample_ratio", 0.001}}), HasSubstr("downsample_ratio: is 0.001"));
}

}  // namespace
}  // namespace evenkeel::preprocess
