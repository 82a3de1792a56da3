// SigLIP 2 of any size: the size of a picture, its patches, what is refused.
#include "preprocess/families/siglip2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ProcessorSpec Siglip2Spec(const nlohmann::json& keys = nullptr) {
  return ConfiguredSpec({{"image_processor_type", "Siglip2ImageProcessor"}}, keys);
}

TEST(Siglip2, TakesTheLargestSizeWithinItsPatches) {
  EXPECT_EQ(Siglip2Size({640, 480}, 16, 256), (ImageSize{288, 224}));
  EXPECT_EQ(Siglip2Size({256, 256}, 16, 256), (ImageSize{256, 256}));
  EXPECT_EQ(Siglip2Size({1, 1}, 16, 256), (ImageSize{112, 112})) << "the scale is at most 100";
  EXPECT_EQ(Siglip2Size({65536, 1}, 16, 256), (ImageSize{256 * 16, 16}));
  for (uint32_t width = 1; width < 3000; width += 37) {
    const ImageSize size = Siglip2Size({width, 500}, 14, 100);
    EXPECT_EQ(size.width % 14 + size.height % 14, 0u);
    EXPECT_LE(size.width / 14 * (size.height / 14), 100u) << width;
  }
}

TEST(Siglip2, EveryWireFormHasTheSameValues) { ExpectWireFormsAgree(Siglip2Spec(), "pictures/wide.png"); }

TEST(Siglip2, PatchesAreRowsWithTheShapeOfTheirGrid) {
  Item item = Make(Siglip2Spec(), Medium::kImage, "pictures/wide.png");
  ASSERT_TRUE(item.status.ok()) << item.status;
  ASSERT_EQ(item.fields.size(), 2u);
  int64_t shape[2];
  ASSERT_EQ(item.fields[1].size(), sizeof(shape));
  std::memcpy(shape, item.fields[1].data(), sizeof(shape));
  EXPECT_EQ(shape[0] * shape[1], item.lengths.input_rows);
  EXPECT_EQ(item.lengths.output_rows, item.lengths.input_rows);
  EXPECT_EQ(item.fields[0].size(), item.lengths.input_rows * 768 * sizeof(float));
}

TEST(Siglip2, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys, Wire wire = Wire::kF32) {
    ProcessorSpec spec = Siglip2Spec(keys);
    spec.wire = wire;
    return std::string(Processor::LoadMedia(spec, Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"size", nullptr}, {"do_center_crop", nullptr}}), "");
  EXPECT_THAT(refusal({{"do_resize", false}}), HasSubstr("do_resize: only true is implemented"));
  EXPECT_THAT(refusal({{"processor_class", "Lfm2VlProcessor"}}), HasSubstr("processor_class"));
  EXPECT_THAT(refusal({{"image_mean", {0.1, 0.2, 0.3}}}, Wire::kU8), HasSubstr("processor.wire f32 or bf16"));
  EXPECT_THAT(refusal({{"max_tiles", 3}}), HasSubstr("max_tiles"));
}

}  // namespace
}  // namespace evenkeel::preprocess
