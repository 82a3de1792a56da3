// DeepSeek-VL of two encoders: both resolutions of a picture, its lengths, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ProcessorSpec HybridSpec(const nlohmann::json& keys = nullptr,
                         const std::map<std::string, nlohmann::json>& files = {}) {
  return ConfiguredSpec({{"image_processor_type", "DeepseekVLHybridImageProcessor"}}, keys, files);
}

TEST(DeepseekVlHybrid, BothResolutionsAreThoseOfTheProcessor) { ExpectPixelsOf("deepseek-vl-hybrid"); }

TEST(DeepseekVlHybrid, WireFormsAgree) { ExpectWireFormsAgree("deepseek-vl-hybrid"); }

TEST(DeepseekVlHybrid, LengthsDoNotDependOnThePicture) {
  auto processor = LoadOrFail(HybridSpec(nullptr, {{"processor_config.json", {{"num_image_tokens", 9}}}}));
  for (const ImageSize size : {ImageSize{1, 1}, {4000, 30}, {640, 480}}) {
    MediaFacts facts;
    facts.width = size.width, facts.height = size.height;
    EXPECT_EQ(*processor->Measure(facts), (ItemLengths{24 * 24 + 64 * 64, 1, 9}));
  }
  ASSERT_EQ(processor->fields(Medium::kImage).size(), 2u);
  EXPECT_EQ(processor->fields(Medium::kImage)[0].name, "pixel_values");
  EXPECT_EQ(processor->fields(Medium::kImage)[1].name, "high_res_pixel_values");
  EXPECT_EQ(processor->fields(Medium::kImage)[1].trailing, (std::vector<uint64_t>{3, 1024, 1024}));
}

TEST(DeepseekVlHybrid, AnInvalidPictureIsZerosInBoth) {
  auto processor = LoadOrFail(HybridSpec({{"size", 32}, {"high_res_size", 64}}));
  const MediaFacts facts = processor->DummyFacts(kVisionPhase);
  const ItemLengths lengths = *processor->Measure(facts);
  std::vector<Bytes> fields;
  for (const FieldSpec& field : processor->fields(Medium::kImage))
    fields.emplace_back(field.num_bytes(lengths), std::byte{0xa5});
  std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
  ASSERT_TRUE(processor->FillInvalid({Medium::kImage, "", {}, facts, lengths}, spans).ok());
  for (const Bytes& field : fields) {
    EXPECT_TRUE(std::all_of(field.begin(), field.end(), [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST(DeepseekVlHybrid, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) {
    return std::string(Processor::LoadMedia(HybridSpec(keys), Limits{}).status().message());
  };
  EXPECT_EQ(
      refusal({{"high_res_background_color", {1, 2, 3}}, {"processor_class", "DeepseekVLHybridProcessor"}}),
      "");
  EXPECT_THAT(refusal({{"high_res_size", {{"height", 64}, {"width", 32}}}}), HasSubstr("high_res_size"));
  EXPECT_THAT(refusal({{"high_res_image_std", {1, 0, 1}}}), HasSubstr("high_res_image_std: has a zero"));
  EXPECT_THAT(refusal({{"high_res_resample", nullptr}}), HasSubstr("high_res_resample"));
  EXPECT_THAT(refusal({{"high_res_resample", 4}}), HasSubstr("high_res_resample: 4 (box)"));
  EXPECT_THAT(refusal({{"min_size", 400}}), HasSubstr("above the side of a result"));
  EXPECT_THAT(refusal({{"do_pad", false}}), HasSubstr("do_pad"));
  EXPECT_THAT(refusal({{"processor_class", "DeepseekVLProcessor"}}), HasSubstr("DeepseekVLProcessor"));
  EXPECT_THAT(refusal({{"do_sharpen", true}}), HasSubstr("do_sharpen: unknown key"));
}

}  // namespace
}  // namespace evenkeel::preprocess
