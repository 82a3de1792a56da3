// Ernie 4.5-VL and VideoLLaMA3: their patches and fields, what is refused. tests/preprocess/test_parity_recent.py
// compares their values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ProcessorSpec ErnieSpec(const nlohmann::json& keys = nullptr) {
  return ConfiguredSpec({{"image_processor_type", "Ernie4_5_VLMoeImageProcessor"},
                         {"processor_class", "Ernie4_5_VLMoeProcessor"}},
                        keys);
}
ProcessorSpec VideoLlama3Spec(const nlohmann::json& keys = nullptr) {
  return ConfiguredSpec(
      {{"image_processor_type", "VideoLlama3ImageProcessor"}, {"processor_class", "VideoLlama3Processor"}},
      keys);
}
std::string RefusedBy(const ProcessorSpec& spec) {
  return std::string(Processor::LoadMedia(spec, Limits{}).status().message());
}

TEST(Ernie45Vl, APatchHasOneFrameAndFourAreAToken) {
  const Item item = Make(ErnieSpec(), Medium::kImage, "pictures/scene.png");  // 41x29, enlarged to 84x56
  ASSERT_TRUE(item.status.ok()) << item.status;
  EXPECT_EQ(item.lengths.input_rows, 24u);
  EXPECT_EQ(item.lengths.output_rows, 6u);
  ASSERT_EQ(item.fields.size(), 2u);
  EXPECT_EQ(item.fields[0].size(), 24u * 3 * 14 * 14 * sizeof(float));
}

TEST(Ernie45Vl, PixelsAreThoseOfTheProcessor) { ExpectPixelsOf("ernie4_5-vl"); }

TEST(Ernie45Vl, EveryWireFormHasTheSameValues) { ExpectWireFormsAgree(ErnieSpec(), "pictures/wide.png"); }

TEST(Ernie45Vl, RefusesWhatItDoesNotImplement) {
  EXPECT_EQ(RefusedBy(ErnieSpec({{"image_processor_type", "Ernie4_5_VL_MoeImageProcessor"}})), "");
  EXPECT_THAT(RefusedBy(ErnieSpec({{"processor_class", "OtherProcessor"}})),
              HasSubstr("only Ernie4_5_VLMoeProcessor"));
  const auto processor = LoadOrFail(ErnieSpec());
  ASSERT_NE(processor, nullptr);
  MediaFacts video;
  video.medium = Medium::kVideo;
  EXPECT_THAT(std::string(processor->Measure(video).status().message()), HasSubstr("draws times"));
}

TEST(VideoLlama3, EveryPatchIsATokenAndTheMergeSizeIsAField) {
  const Item item = Make(VideoLlama3Spec(), Medium::kImage, "pictures/scene.png");
  ASSERT_TRUE(item.status.ok()) << item.status;
  EXPECT_EQ(item.lengths.output_rows, item.lengths.input_rows);
  ASSERT_EQ(item.fields.size(), 3u);
  int64_t merge = 0;
  ASSERT_EQ(item.fields[2].size(), sizeof(merge));
  std::memcpy(&merge, item.fields[2].data(), sizeof(merge));
  EXPECT_EQ(merge, 1);
}

TEST(VideoLlama3, PixelsAreThoseOfTheProcessor) { ExpectPixelsOf("videollama3"); }

TEST(VideoLlama3, EveryWireFormHasTheSameValues) {
  ExpectWireFormsAgree(VideoLlama3Spec(), "pictures/wide.png");
}

TEST(VideoLlama3, RefusesWhatItDoesNotImplement) {
  EXPECT_EQ(RefusedBy(VideoLlama3Spec({{"merge_size", 2}, {"max_pixels", 100352}})), "");
  EXPECT_THAT(RefusedBy(VideoLlama3Spec({{"processor_class", "OtherProcessor"}})),
              HasSubstr("only VideoLlama3Processor"));
}

}  // namespace
}  // namespace evenkeel::preprocess
