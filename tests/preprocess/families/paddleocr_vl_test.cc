// PaddleOCR-VL: the size of a picture, its patches and placeholders, what is refused.
#include "preprocess/families/paddleocr_vl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ProcessorSpec PaddleSpec(const nlohmann::json& keys = nullptr) {
  return ConfiguredSpec({{"image_processor_type", "PaddleOCRVLImageProcessor"},
                         {"processor_class", "PaddleOCRVLProcessor"},
                         {"size", {{"shortest_edge", 147384}, {"longest_edge", 2822400}}}},
                        keys);
}

TEST(PaddleOcrVl, RaisesShortSidesToOneToken) {
  EXPECT_EQ(*PaddleOcrSize({640, 480}, 28, 1, 1 << 30), (ImageSize{644, 476}));
  EXPECT_EQ(*PaddleOcrSize({10, 60}, 28, 1, 1 << 30), (ImageSize{28, 168}));
  EXPECT_EQ(*PaddleOcrSize({60, 10}, 28, 1, 1 << 30), (ImageSize{168, 28}));
  EXPECT_EQ(*PaddleOcrSize({1, 1}, 28, 384 * 384, 1 << 30), (ImageSize{392, 392}));
  EXPECT_FALSE(PaddleOcrSize({6000, 1}, 28, 1, 1 << 30).ok());
  EXPECT_FALSE(PaddleOcrSize({0, 5}, 28, 1, 1 << 30).ok());
}

TEST(PaddleOcrVl, EveryWireFormHasTheSameValues) {
  ExpectWireFormsAgree(PaddleSpec({{"min_pixels", 784}}), "pictures/wide.png");
}

TEST(PaddleOcrVl, APlaceholderIsASquareOfPatchesOnTheGrid) {
  const ProcessorSpec spec = PaddleSpec();
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  EXPECT_EQ((*family)->merge_size(), 2u);
  MediaFacts facts;
  facts.width = 640, facts.height = 480;
  const ItemLengths lengths = *(*family)->Measure(facts);
  EXPECT_EQ(lengths.input_rows, 46u * 34u);
  EXPECT_EQ(lengths.output_rows, 23u * 17u);
  std::vector<PlaceholderRun> runs;
  ASSERT_TRUE((*family)->Placeholders(facts, runs).ok());
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].rows, lengths.output_rows);
  EXPECT_EQ(runs[0].grid.h, 34u);
  EXPECT_EQ(runs[0].grid.w, 46u);
  EXPECT_EQ(runs[0].grid.t, 1u);
}

TEST(PaddleOcrVl, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) {
    return std::string(Processor::LoadMedia(PaddleSpec(keys), Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"temporal_patch_size", 1}}), "");
  EXPECT_THAT(refusal({{"temporal_patch_size", 2}}), HasSubstr("temporal_patch_size"));
  EXPECT_THAT(refusal({{"processor_class", "OtherProcessor"}}), HasSubstr("only PaddleOCRVLProcessor"));
  EXPECT_THAT(refusal({{"tiles", 2}}), HasSubstr("tiles"));
}

}  // namespace
}  // namespace evenkeel::preprocess
