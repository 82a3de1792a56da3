// DeepSeek-OCR 2: whole pictures and tiles, placeholders, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/preprocess/families/family_golden.h"
#include "tests/preprocess/families/random_facts.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ProcessorSpec Ocr2Spec(const nlohmann::json& keys = nullptr,
                       const std::map<std::string, nlohmann::json>& files = {}) {
  return ConfiguredSpec({{"image_processor_type", "DeepseekOcr2ImageProcessor"}}, keys, files);
}

absl::StatusOr<ItemLengths> Ocr2Lengths(const ProcessorSpec& spec, uint32_t width, uint32_t height) {
  auto processor = LoadOrFail(spec);
  return processor->Measure({.width = width, .height = height});
}

TEST(DeepseekOcr2, PixelsAreThoseOfTheProcessor) { ExpectPixelsOf("deepseek-ocr2", 10); }

TEST(DeepseekOcr2, WireFormsAgree) { ExpectWireFormsAgree("deepseek-ocr2"); }

// Counted by transformers 5.23.
TEST(DeepseekOcr2, TokensAreThoseOfTheWholePictureAndOfTiles) {
  EXPECT_EQ(*Ocr2Lengths(Ocr2Spec(), 768, 700), (ItemLengths{4096, 1, 257}));
  EXPECT_EQ(*Ocr2Lengths(Ocr2Spec(), 900, 700), (ItemLengths{4096 + 6 * 2304, 6, 257 + 6 * 144}));
  EXPECT_EQ(*Ocr2Lengths(Ocr2Spec(), 2000, 1000), (ItemLengths{4096 + 2 * 2304, 2, 257 + 2 * 144}));
  const ProcessorSpec coarse = Ocr2Spec(nullptr, {{"processor_config.json", {{"downsample_ratio", 5}}}});
  EXPECT_EQ(Ocr2Lengths(coarse, 768, 700)->output_rows, 13u * 13 + 1);
  EXPECT_FALSE(Ocr2Lengths(Ocr2Spec(), 1, 4000).ok()) << "has no pixels in the square";
}

TEST(DeepseekOcr2, TheProcessorDecidesWhatIsCut) {
  const nlohmann::json whole = {{"crop_to_patches", false}, {"max_patches", 9}};
  EXPECT_EQ(Ocr2Lengths(Ocr2Spec(whole), 2000, 1000)->input_rows, 1u);
  EXPECT_EQ(Ocr2Lengths(Ocr2Spec(whole), 2000, 1000)->output_rows, 145u) << "the square is a tile's";
  nlohmann::json asked = whole;
  asked["processor_class"] = "DeepseekOcr2Processor";
  EXPECT_EQ(Ocr2Lengths(Ocr2Spec(asked), 2000, 1000)->input_rows, 2u);
}

TEST(DeepseekOcr2, APictureWithoutTilesHasARowOfZeros) {
  const ProcessorSpec spec = VisionSpec("deepseek-ocr2");
  const Item dot = Make(spec, Medium::kImage, "pictures/dot.png");
  const Item scene = Make(spec, Medium::kImage, "pictures/scene.png");
  ASSERT_TRUE(dot.status.ok() && scene.status.ok()) << dot.status << scene.status;
  EXPECT_EQ(dot.fields[1], Bytes(3 * 28 * 28 * sizeof(float)));
  int64_t tiles[2] = {7, 7};
  std::memcpy(&tiles[0], dot.fields[2].data(), sizeof(int64_t));
  std::memcpy(&tiles[1], scene.fields[2].data(), sizeof(int64_t));
  EXPECT_EQ(tiles[0], 0);
  EXPECT_EQ(tiles[1], scene.lengths.input_rows);
}

TEST(DeepseekOcr2, LengthsOfAnyPictureAreOneNumber) {
  auto family = FamilyOf("deepseek-ocr2");
  ASSERT_NE(family, nullptr);
  Dice dice(4);
  for (int i = 0; i < 300; ++i) ExpectOneNumber(*family, RandomFacts(Medium::kImage, dice));
  EXPECT_TRUE(absl::IsUnimplemented(family->Measure(RandomFacts(Medium::kVideo, dice)).status()));
  EXPECT_TRUE(family->Measure(family->DummyFacts()).ok());
}

TEST(DeepseekOcr2, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) {
    return std::string(Processor::LoadMedia(Ocr2Spec(keys), Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"min_patches", 3}, {"background_color", {0, 0, 255}}}), "");
  EXPECT_THAT(refusal({{"min_patches", 7}}), HasSubstr("min_patches: is above max_patches"));
  EXPECT_THAT(refusal({{"background_color", {0, 0, 256}}}), HasSubstr("background_color"));
  EXPECT_THAT(refusal({{"tile_size", nullptr}}), HasSubstr("tile_size"));
  EXPECT_THAT(refusal({{"size", {{"shortest_edge", 1024}}}}), HasSubstr("size: is not a square"));
  EXPECT_THAT(refusal({{"processor_class", "OtherProcessor"}}), HasSubstr("OtherProcessor"));
  EXPECT_THAT(refusal({{"do_sharpen", true}}), HasSubstr("do_sharpen: unknown key"));
}

}  // namespace
}  // namespace evenkeel::preprocess
