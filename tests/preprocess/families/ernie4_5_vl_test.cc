// Ernie 4.5-VL and VideoLLaMA3: their patches and fields, what is refused. tests/preprocess/test_parity_recent.py
// compares their values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ProcessorSpec ErnieSpec(const nlohmann::json& keys = nullptr,
                        const std::map<std::string, nlohmann::json>& files = {}) {
  return ConfiguredSpec({{"image_processor_type", "Ernie4_5_VLMoeImageProcessor"},
                         {"processor_class", "Ernie4_5_VLMoeProcessor"}},
                        keys, files);
}
ProcessorSpec VideoLlama3Spec(const nlohmann::json& keys = nullptr,
                              const std::map<std::string, nlohmann::json>& files = {}) {
  return ConfiguredSpec(
      {{"image_processor_type", "VideoLlama3ImageProcessor"}, {"processor_class", "VideoLlama3Processor"}},
      keys, files);
}
// A folder with a video processor's file, whose values have small frames.
ProcessorSpec WithVideos(const std::string& family, nlohmann::json video) {
  const bool is_ernie = family == "Ernie";
  video["video_processor_type"] = is_ernie ? "Ernie4_5_VLMoeVideoProcessor" : "VideoLlama3VideoProcessor";
  video["size"] = {{"shortest_edge", 784}, {"longest_edge", 6272}};
  const std::map<std::string, nlohmann::json> files = {{"video_preprocessor_config.json", video}};
  return is_ernie ? ErnieSpec(nullptr, files) : VideoLlama3Spec(nullptr, files);
}
MediaFacts SmallVideoOf(uint32_t frames, uint32_t fps) {
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  facts.width = 84, facts.height = 56, facts.num_frames = frames, facts.fps_num = fps, facts.fps_den = 1;
  return facts;
}
std::string VideoRefusalOf(const ProcessorSpec& spec) {
  const auto processor = LoadOrFail(spec);
  return processor == nullptr ? "" : std::string(processor->Measure(SmallVideoOf(20, 2)).status().message());
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
  EXPECT_THAT(VideoRefusalOf(ErnieSpec()), HasSubstr("has no file of a Ernie4_5_VLMoeVideoProcessor"));
  const std::string said = VideoRefusalOf(WithVideos("Ernie", nlohmann::json::object()));
  EXPECT_THAT(said, HasSubstr("draws times"));
  EXPECT_THAT(said, HasSubstr("processor.python: transformers"));
  const nlohmann::json drawn = {{"draw_on_frames", false}};
  nlohmann::json numbered = drawn;
  numbered["num_frames"] = 5;
  EXPECT_THAT(VideoRefusalOf(WithVideos("Ernie", numbered)), HasSubstr("not within min_frames, 16"));
  numbered["fps"] = 2;
  EXPECT_THAT(VideoRefusalOf(WithVideos("Ernie", numbered)), HasSubstr("together with fps"));
  ProcessorSpec of_utils = WithVideos("Ernie", drawn);
  of_utils.frame_rule = "qwen_vl_utils";
  EXPECT_THAT(RefusedBy(of_utils), HasSubstr("'qwen_vl_utils' is of the Qwen families"));
}

TEST(Ernie45Vl, TwoFramesShareTheirTokens) {
  const ProcessorSpec spec = WithVideos("Ernie", {{"draw_on_frames", false}, {"min_frames", 3}});
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  // Of 56x84 pixels, 24 patches and 6 tokens; the fourth frame repeats the third.
  EXPECT_EQ(*(*family)->Measure(SmallVideoOf(3, 2)), (ItemLengths{4 * 24, 4 * 24, 2 * 6}));
  std::vector<PlaceholderRun> runs;
  ASSERT_TRUE((*family)->Placeholders(SmallVideoOf(3, 2), runs).ok());
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].grid.t, 2u);
  EXPECT_EQ((*family)->fields(Medium::kVideo).size(), 2u);
}

TEST(Ernie45Vl, AFractionOfFramesIsOneMore) {
  ProcessorSpec spec = WithVideos("Ernie", {{"draw_on_frames", false}, {"min_frames", 1}});
  spec.fps = 1.5;
  // 7.5 frames of 10: torch.arange has 8.
  EXPECT_EQ(LoadOrFail(spec)->Measure(SmallVideoOf(10, 2))->input_rows, 8u * 24);
}

TEST(Ernie45Vl, AVideosLastFrameIsRepeated) {
  ProcessorSpec spec = WithVideos("Ernie", {{"draw_on_frames", false}, {"min_frames", 3}});
  spec.max_frames = 3;
  spec.wire = Wire::kF32;
  const Item item = Make(spec, Medium::kVideo, "video/h264.mp4");
  ASSERT_TRUE(item.status.ok()) << item.status;
  const Bytes& pixels = item.fields[0];
  const size_t frame = pixels.size() / 4;
  EXPECT_EQ(std::memcmp(&pixels[2 * frame], &pixels[3 * frame], frame), 0);
  EXPECT_NE(std::memcmp(&pixels[frame], &pixels[2 * frame], frame), 0);
}

TEST(VideoLlama3, EveryFrameHasItsTimeAndAShareOfThePixels) {
  const ProcessorSpec spec = WithVideos("VideoLlama3", {{"use_token_compression", false}});
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  EXPECT_EQ(*(*family)->Measure(SmallVideoOf(1, 2)), (ItemLengths{24, 24, 6}));
  EXPECT_EQ(*(*family)->Measure(SmallVideoOf(4, 2)), (ItemLengths{4 * 4, 4 * 4, 4})) << "of 28x28 pixels";
  std::vector<PlaceholderRun> runs;
  ASSERT_TRUE((*family)->Placeholders(SmallVideoOf(2, 8), runs).ok());
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].text, "Time 0.0s:");
  EXPECT_EQ(runs[1].text, ",Time 0.1s:");
  ASSERT_EQ((*family)->fields(Medium::kVideo).size(), 3u);
  EXPECT_EQ((*family)->fields(Medium::kVideo)[2].name, "video_merge_sizes");
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
  EXPECT_THAT(VideoRefusalOf(VideoLlama3Spec()), HasSubstr("has no file of a VideoLlama3VideoProcessor"));
  const std::string said = VideoRefusalOf(WithVideos("VideoLlama3", {{"do_sample_frames", true}}));
  EXPECT_THAT(said, HasSubstr("use_token_compression: is true"));
  EXPECT_THAT(said, HasSubstr("processor.python: transformers"));
  EXPECT_THAT(VideoRefusalOf(
                  WithVideos("VideoLlama3", {{"do_sample_frames", true}, {"use_token_compression", false}})),
              HasSubstr("and fps are missing"));
}

}  // namespace
}  // namespace evenkeel::preprocess
