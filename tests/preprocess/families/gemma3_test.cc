// Gemma 3 and PaliGemma: pictures of one size, and as many tokens as the processor's file says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

TEST(Gemma3, PixelsAreThoseOfTransformers) { ExpectPixelsOf("gemma3"); }
TEST(Gemma3, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("gemma3"); }
TEST(Gemma3n, PixelsAreThoseOfTransformers) { ExpectPixelsOf("gemma3n"); }
TEST(PaliGemma, PixelsAreThoseOfTransformers) { ExpectPixelsOf("paligemma"); }
TEST(PaliGemma, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("paligemma"); }

TEST(Gemma3, HasTheTokensOfItsProcessorBetweenMarksAndLineBreaks) {
  MediaFacts facts{.width = 3, .height = 4000};
  EXPECT_EQ(*LoadOrFail(VisionSpec("gemma3"))->Measure(facts), (ItemLengths{64 * 64, 1, 256}));
  const MediumStyle style = PictureStyleOf(*FamilyOf("gemma3"));
  EXPECT_EQ(style.before + style.begin + style.placeholder + style.end + style.after,
            "\n\n<start_of_image><image_soft_token><end_of_image>\n\n");
}

TEST(PaliGemma, HasTheTokensOfItsFileAndBeginsTheTextAfterThem) {
  MediaFacts facts{.width = 3, .height = 4000};
  EXPECT_EQ(*LoadOrFail(VisionSpec("paligemma"))->Measure(facts), (ItemLengths{32 * 32, 1, 1024}));
  const MediumStyle style = PictureStyleOf(*FamilyOf("paligemma"));
  EXPECT_EQ(style.begin + style.placeholder + style.end + style.behind_all, "<image><bos>");
}

// Its image processor without a word of a processor.
ProcessorSpec Alone(const nlohmann::json& keys) {
  nlohmann::json values = {{"image_processor_type", "Gemma3ImageProcessor"}};
  values.update(keys);
  return FolderSpec({{"preprocessor_config.json", values}});
}

TEST(Gemma3, IsRefusedWherePicturesWouldBePannedAndScanned) {
  const nlohmann::json on = {{"do_pan_and_scan", true}, {"pan_and_scan_max_num_crops", 4}};
  EXPECT_EQ(RefusalOf("gemma3", on), "") << "its processor says no in every call";
  nlohmann::json elsewhere = on;
  elsewhere["processor_class"] = nullptr;
  EXPECT_EQ(RefusalOf("gemma3", elsewhere), "") << "processor_config.json names the processor";
  const absl::Status refused = Processor::LoadMedia(Alone(on), Limits{}).status();
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("do_pan_and_scan: is true; only false is implemented"));
  EXPECT_TRUE(Processor::LoadMedia(Alone({{"do_pan_and_scan", false}}), Limits{}).ok());
}

TEST(Gemma3, ConvertsTransparencyUnlessTheImageProcessorIsAlone) {
  const auto digest = [](ProcessorSpec spec) {
    spec.resampler = "aten_u8";
    return LoadOrFail(spec)->digest();
  };
  EXPECT_EQ(digest(VisionSpec("gemma3")), digest(EditedSpec("gemma3", {{"do_convert_rgb", false}})));
  EXPECT_NE(digest(Alone(nlohmann::json::object())), digest(Alone({{"do_convert_rgb", nullptr}})));
}

TEST(Gemma3, RefusesWhatItsImageProcessorDoesNotDo) {
  EXPECT_THAT(RefusalOf("gemma3", {{"size", {{"shortest_edge", 896}}}}),
              HasSubstr("size is not {height, width}"));
  EXPECT_THAT(RefusalOf("gemma3", {{"do_center_crop", true}}), HasSubstr("do_center_crop: is true"));
  EXPECT_THAT(RefusalOf("gemma3", {{"pan_and_zoom", true}}), HasSubstr("pan_and_zoom: unknown key"));
  EXPECT_THAT(RefusalOf("gemma3", {{"processor_class", "ShieldGemma2Processor"}}),
              HasSubstr("of ShieldGemma2Processor is not implemented"));
}

TEST(PaliGemma, IsNeverTakenForAnEncoderWithOtherTokens) {
  EXPECT_THAT(RefusalOf("paligemma", {{"image_seq_length", nullptr}}),
              HasSubstr("image_seq_length: is missing; PaliGemmaProcessor takes"));
  EXPECT_EQ(RefusalOf("paligemma", {{"processor_class", nullptr}}), "");
  const MediaFacts facts{.width = 30, .height = 40};
  const auto alone =
      LoadOrFail(EditedSpec("paligemma", {{"processor_class", nullptr}, {"image_seq_length", 77}}));
  EXPECT_EQ(alone->Measure(facts)->output_rows, 77u);
  EXPECT_THAT(RefusalOf("paligemma", {{"processor_class", "ColPaliProcessor"}}),
              HasSubstr("image_seq_length: is set for ColPaliProcessor"));
  // 28 patches of 16 pixels a side.
  EXPECT_THAT(RefusalOf("paligemma", {{"processor_class", "SiglipProcessor"}}),
              HasSubstr("image_seq_length is 1024, but pictures of 448x448 pixels have 784 tokens"));
  EXPECT_EQ(RefusalOf("paligemma", {{"processor_class", "SiglipProcessor"}, {"image_seq_length", 784}}), "");
}

}  // namespace
}  // namespace evenkeel::preprocess
