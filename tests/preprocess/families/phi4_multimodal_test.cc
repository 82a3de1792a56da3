// Phi-4-multimodal's pictures: tiles, masks and placeholders, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/preprocess/families/family_golden.h"
#include "tests/preprocess/families/random_facts.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ProcessorSpec Phi4Spec(const nlohmann::json& keys = nullptr) {
  ProcessorSpec spec = ConfiguredSpec({{"image_processor_type", "Phi4MultimodalImageProcessorFast"}}, keys);
  spec.resampler = "aten_u8";
  return spec;
}

absl::StatusOr<ItemLengths> Phi4Lengths(uint32_t width, uint32_t height) {
  auto processor = LoadOrFail(Phi4Spec());
  MediaFacts facts;
  facts.width = width, facts.height = height;
  return processor->Measure(facts);
}

TEST(Phi4Multimodal, PixelsAreThoseOfTransformers) { ExpectPixelsOf("phi4-multimodal", 3); }

// Counted by transformers 5.23.
TEST(Phi4Multimodal, TokensAreThoseOfTheMask) {
  EXPECT_EQ(*Phi4Lengths(448, 448), (ItemLengths{2 * 1024, 2, 545}));
  EXPECT_EQ(*Phi4Lengths(300, 200), (ItemLengths{2 * 1024, 2, 460}));
  EXPECT_EQ(*Phi4Lengths(1500, 400), (ItemLengths{5 * 1024, 5, 1249}));
  EXPECT_EQ(*Phi4Lengths(2700, 2689), (ItemLengths{37 * 1024, 37, 9585}));
  EXPECT_EQ(*Phi4Lengths(3600, 900), (ItemLengths{28 * 1024, 28, 5493}));
  EXPECT_THAT(std::string(Phi4Lengths(3000, 9).status().message()),
              HasSubstr("image of 3000x9 pixels, which the processor would resize to"));
}

TEST(Phi4Multimodal, LengthsOfAnyPictureAreOneNumber) {
  const ProcessorSpec spec = Phi4Spec({{"size", 56}, {"dynamic_hd", 7}});
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  Dice dice(7);
  for (int i = 0; i < 300; ++i) ExpectOneNumber(**family, RandomFacts(Medium::kImage, dice));
  EXPECT_TRUE((*family)->Measure((*family)->DummyFacts()).ok());
  EXPECT_TRUE(absl::IsUnimplemented((*family)->Measure(RandomFacts(Medium::kVideo, dice)).status()));
}

TEST(Phi4Multimodal, ValuesTravelAsFloatsWhereTheJobAsksForBytes) {
  ProcessorSpec spec = VisionSpec("phi4-multimodal", "aten_u8");
  const Item floats = Make(spec, Medium::kImage, "pictures/scene.png");
  spec.wire = Wire::kU8;
  const Item bytes = Make(spec, Medium::kImage, "pictures/scene.png");
  spec.wire = Wire::kBf16;
  const Item halves = Make(spec, Medium::kImage, "pictures/scene.png");
  ASSERT_TRUE(floats.status.ok() && bytes.status.ok() && halves.status.ok()) << floats.status;
  EXPECT_EQ(floats.fields, bytes.fields);
  ASSERT_EQ(2 * halves.fields[0].size(), floats.fields[0].size());
  for (size_t i = 0; i < halves.fields[0].size() / 2; ++i) {
    float value;
    uint16_t rounded;
    std::memcpy(&value, &floats.fields[0][4 * i], 4);
    std::memcpy(&rounded, &halves.fields[0][2 * i], 2);
    ASSERT_EQ(rounded, ToBf16(value)) << i;
  }
}

TEST(Phi4Multimodal, TheMaskLeavesPaddingOut) {
  // 41x29 in a grid of 56x56: 39 rows, so that two of the eight rows of patches are all padding.
  const Item item = Make(VisionSpec("phi4-multimodal", "aten_u8"), Medium::kImage, "pictures/scene.png");
  ASSERT_TRUE(item.status.ok()) << item.status;
  std::vector<int64_t> mask(item.fields[1].size() / sizeof(int64_t));
  ASSERT_EQ(mask.size(), 5u * 4 * 4);
  std::memcpy(mask.data(), item.fields[1].data(), item.fields[1].size());
  int marked = 0;
  for (const int64_t value : mask) marked += value == 1;
  EXPECT_EQ(marked, 16 + 8 * 6);
  EXPECT_EQ(mask.back(), 0);
  int64_t sides[2];
  ASSERT_EQ(item.fields[2].size(), sizeof(sides));
  std::memcpy(sides, item.fields[2].data(), sizeof(sides));
  EXPECT_EQ(sides[0], 56);
  EXPECT_EQ(sides[1], 56);
}

TEST(Phi4Multimodal, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) {
    return std::string(Processor::LoadMedia(Phi4Spec(keys), Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"do_normalize", false}, {"dynamic_hd", 64}, {"audio_compression_rate", 8}}), "");
  EXPECT_EQ(refusal({{"resample", 2}}), "");
  EXPECT_THAT(refusal({{"resample", 1}}), HasSubstr("resample: only bicubic"));
  EXPECT_THAT(refusal({{"resample", 2}, {"size", 56}}), HasSubstr("with a size above 64 bilinear"));
  EXPECT_THAT(refusal({{"dynamic_hd", 65}}), HasSubstr("dynamic_hd"));
  EXPECT_THAT(refusal({{"dynamic_hd", nullptr}}), HasSubstr("dynamic_hd"));
  EXPECT_THAT(refusal({{"patch_size", 449}}), HasSubstr("patch_size"));
  EXPECT_THAT(refusal({{"size", 10}}), HasSubstr("size: is 10x10 pixels, smaller than one 14-pixel patch"));
  EXPECT_THAT(refusal({{"size", {{"height", 448}, {"width", 224}}}}), HasSubstr("size: is not a square"));
  EXPECT_THAT(refusal({{"do_rescale", false}, {"do_normalize", false}}), HasSubstr("do_rescale"));
  EXPECT_THAT(refusal({{"do_sharpen", true}}), HasSubstr("do_sharpen: unknown key"));
}

}  // namespace
}  // namespace evenkeel::preprocess
