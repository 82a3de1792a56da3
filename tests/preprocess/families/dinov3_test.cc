// DINOv3: pictures that are resized as floats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

TEST(Dinov3, PixelsAreThoseOfTransformers) { ExpectPixelsOf("dinov3", 5); }

TEST(Dinov3, ValuesTravelAsFloatsWhereTheJobAsksForBytes) {
  ProcessorSpec spec = VisionSpec("dinov3", "aten_u8");
  const Item floats = Make(spec, Medium::kImage, "pictures/wide.png");
  spec.wire = Wire::kU8;
  const Item bytes = Make(spec, Medium::kImage, "pictures/wide.png");
  ASSERT_TRUE(floats.status.ok() && bytes.status.ok()) << floats.status << bytes.status;
  EXPECT_EQ(floats.fields[0], bytes.fields[0]);
  spec.wire = Wire::kBf16;
  const Item halves = Make(spec, Medium::kImage, "pictures/wide.png");
  ASSERT_TRUE(halves.status.ok()) << halves.status;
  ASSERT_EQ(2 * halves.fields[0].size(), floats.fields[0].size());
  for (size_t i = 0; i < halves.fields[0].size() / 2; ++i) {
    float value;
    uint16_t rounded;
    std::memcpy(&value, &floats.fields[0][4 * i], 4);
    std::memcpy(&rounded, &halves.fields[0][2 * i], 2);
    ASSERT_EQ(rounded, ToBf16(value)) << i;
  }
}

TEST(Dinov3, APictureHasARowForEveryPatch) {
  const ProcessorSpec spec = VisionSpec("dinov3", "aten_u8");
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  for (const uint32_t side : {1u, 20u, 5000u}) {
    EXPECT_EQ(*(*family)->Measure({.width = side, .height = 7}), (ItemLengths{2, 1, 2}));
  }
  EXPECT_EQ((*family)->Measure({.medium = Medium::kVideo, .width = 8, .height = 8}).status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(Dinov3, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) {
    ProcessorSpec spec = EditedSpec("dinov3", keys);
    spec.resampler = "aten_u8";
    return std::string(Processor::LoadMedia(spec, Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"do_normalize", false}}), "");
  EXPECT_THAT(refusal({{"do_rescale", false}}), HasSubstr("do_rescale: is false; only true"));
  EXPECT_THAT(refusal({{"do_center_crop", true}}), HasSubstr("do_center_crop: is true; only false"));
  EXPECT_THAT(refusal({{"resample", 3}}), HasSubstr("resample: is not bilinear"));
  EXPECT_THAT(refusal({{"size", {{"shortest_edge", 56}}}}), HasSubstr("size: is not {height, width}"));
  EXPECT_THAT(refusal({{"size", {{"height", 8}, {"width", 32}}}}),
              HasSubstr("size: is 32x8 pixels, smaller than one 16-pixel patch"));
  EXPECT_THAT(refusal({{"do_sharpen", true}}), HasSubstr("do_sharpen: unknown key"));
  EXPECT_EQ(RefusalOf("dinov3", nlohmann::json::object()), "");
  ProcessorSpec pillow = VisionSpec("dinov3");
  pillow.resampler = "pil";
  EXPECT_THAT(std::string(Processor::LoadMedia(pillow, Limits{}).status().message()),
              HasSubstr("torchvision only; set it to aten_u8"));
}

}  // namespace
}  // namespace evenkeel::preprocess
