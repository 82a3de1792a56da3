// Gemma 4: pictures and frames as patches with their places.
#include "preprocess/families/gemma4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

// As the published files, which have all parts in one.
ProcessorSpec Gemma4Spec(const nlohmann::json& image_keys, const nlohmann::json& video_keys = nullptr) {
  nlohmann::json image = {{"image_processor_type", "Gemma4ImageProcessor"},
                          {"do_normalize", false},
                          {"image_mean", {0.0, 0.0, 0.0}},
                          {"image_std", {1.0, 1.0, 1.0}},
                          {"image_seq_length", 280},
                          {"max_soft_tokens", 280},
                          {"patch_size", 16},
                          {"pooling_kernel_size", 3},
                          {"resample", 3},
                          {"size", nullptr}};
  nlohmann::json video = {{"video_processor_type", "Gemma4VideoProcessor"}, {"num_frames", 4}};
  for (const auto& [key, value] : image_keys.items()) image[key] = value;
  for (const auto& [key, value] : video_keys.items()) video[key] = value;
  ProcessorSpec spec = FolderSpec({{"processor_config.json",
                                    {{"processor_class", "Gemma4Processor"},
                                     {"image_seq_length", 280},
                                     {"audio_seq_length", 750},
                                     {"audio_ms_per_token", 40},
                                     {"image_processor", image},
                                     {"video_processor", video}}}});
  spec.wire = Wire::kF32;
  return spec;
}

TEST(Gemma4, TakesTheLargestSizeOfWholeTokens) {
  const Gemma4Grid grid;
  EXPECT_EQ(*Gemma4Size({800, 600}, grid), (ImageSize{912, 672}));
  EXPECT_EQ(*Gemma4Size({8, 6}, grid), (ImageSize{912, 672})) << "small pictures are enlarged";
  EXPECT_EQ(*Gemma4Size({1, 1}, grid), (ImageSize{768, 768}));
  EXPECT_EQ(*Gemma4Size({4000, 10}, grid), (ImageSize{280 * 48, 48})) << "at least a token high";
  EXPECT_EQ(*Gemma4Size({5, 900}, {.max_tokens = 70}), (ImageSize{48, 70 * 48}));
}

TEST(Gemma4, EveryWireFormHasTheSameValues) {
  ExpectWireFormsAgree(Gemma4Spec({{"max_soft_tokens", 70}}), "pictures/wide.png");
}

TEST(Gemma4, PatchesHaveTheirPlaces) {
  Item item = Make(Gemma4Spec({{"max_soft_tokens", 70}}), Medium::kImage, "pictures/wide.png");
  ASSERT_TRUE(item.status.ok()) << item.status;
  ASSERT_EQ(item.fields.size(), 2u);
  EXPECT_EQ(item.lengths.output_rows, item.lengths.input_rows / 9);
  EXPECT_EQ(item.fields[0].size(), item.lengths.input_rows * 768 * sizeof(float));
  std::vector<int64_t> places(2 * item.lengths.input_rows);
  ASSERT_EQ(item.fields[1].size(), places.size() * sizeof(int64_t));
  std::memcpy(places.data(), item.fields[1].data(), item.fields[1].size());
  const int64_t columns = places[places.size() - 2] + 1, rows = places.back() + 1;
  EXPECT_EQ(columns * rows, item.lengths.input_rows);
  EXPECT_EQ(places[2], 1);
  EXPECT_EQ(places[3], 0);
  EXPECT_EQ(places[2 * columns], 0);
  EXPECT_EQ(places[2 * columns + 1], 1);
}

TEST(Gemma4, FramesComeAfterTheirTimes) {
  const ProcessorSpec spec = Gemma4Spec({});
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  facts.width = 64, facts.height = 48, facts.num_frames = 400, facts.fps_num = 4, facts.fps_den = 1;
  const ItemLengths lengths = *(*family)->Measure(facts);
  EXPECT_EQ(lengths.input_rows, 9 * lengths.output_rows);
  EXPECT_EQ(lengths.output_rows % 4, 0u);
  std::vector<PlaceholderRun> runs;
  ASSERT_TRUE((*family)->Placeholders(facts, runs).ok());
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[0].text, "00:00 ");
  EXPECT_EQ(runs[1].text, " 00:25 ");
  EXPECT_EQ(runs[3].text, " 01:15 ");
  EXPECT_EQ(runs[3].rows, lengths.output_rows / 4);
  facts.num_frames = 3;
  EXPECT_TRUE(absl::IsInvalidArgument((*family)->Measure(facts).status())) << "fewer frames than it takes";
}

TEST(Gemma4, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys, Wire wire = Wire::kF32) {
    ProcessorSpec spec = Gemma4Spec(keys);
    spec.wire = wire;
    return std::string(Processor::LoadMedia(spec, Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"max_soft_tokens", 1120}}), "");
  EXPECT_THAT(refusal({{"max_soft_tokens", 100}}), HasSubstr("not one of 70, 140, 280, 560 and 1120"));
  EXPECT_THAT(refusal({{"do_resize", false}}), HasSubstr("do_resize: only true"));
  EXPECT_THAT(refusal({{"do_sharpen", true}}), HasSubstr("do_sharpen: unknown key"));
  const nlohmann::json apart = {{"do_normalize", true}, {"image_mean", {0.1, 0.2, 0.3}}};
  EXPECT_EQ(refusal(apart), "");
  EXPECT_THAT(refusal(apart, Wire::kU8), HasSubstr("differs from channel to channel"));
}

}  // namespace
}  // namespace evenkeel::preprocess
