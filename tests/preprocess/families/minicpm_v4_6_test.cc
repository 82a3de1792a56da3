// MiniCPM-V 4.6: grids and sizes of pictures, their patches and placeholders, what is refused.
#include "preprocess/families/minicpm_v4_6.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/preprocess/families/family_golden.h"
#include "tests/preprocess/families/random_facts.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ProcessorSpec MiniCpmSpec(const nlohmann::json& keys = nullptr,
                          const std::map<std::string, nlohmann::json>& files = {}) {
  return ConfiguredSpec({{"image_processor_type", "MiniCPMV4_6ImageProcessor"}}, keys, files);
}

MediaFacts PictureFacts(uint32_t width, uint32_t height) {
  MediaFacts facts;
  facts.width = width, facts.height = height;
  return facts;
}

TEST(MiniCpmV46, GridsAndSizesAreThoseOfTheProcessor) {
  int compared = 0;
  for (const nlohmann::json& example : FamilyGolden("canvas", "minicpm")) {
    SCOPED_TRACE(example.dump());
    MiniCpmRules rules;
    rules.max_slices = example[2];
    if (rules.max_slices == 25) rules.side = 200, rules.merge = 2;
    const ImageSize picture{example[0], example[1]};
    const TileGrid grid = MiniCpmGrid(picture, rules);
    const bool is_cut = grid.tiles() > 1;
    EXPECT_EQ(grid, (TileGrid{example[3], example[4]}));
    EXPECT_EQ(MiniCpmSize(picture, rules, !is_cut), (ImageSize{example[5], example[6]}));
    if (is_cut) {
      EXPECT_EQ(MiniCpmCanvas(picture, grid, rules), (ImageSize{example[7], example[8]}));
    }
    ++compared;
  }
  EXPECT_GE(compared, 1200);
}

TEST(MiniCpmV46, PixelsAreThoseOfTheProcessor) { ExpectPixelsOf("minicpm-v-4_6"); }

TEST(MiniCpmV46, WireFormsAgree) { ExpectWireFormsAgree("minicpm-v-4_6"); }

TEST(MiniCpmV46, SizesOfTheWholeAndOfSlicesAreFilledUp) {
  const Item item = Make(VisionSpec("minicpm-v-4_6"), Medium::kImage, "pictures/scene.png");
  ASSERT_TRUE(item.status.ok()) << item.status;
  int64_t sizes[10][2];
  ASSERT_EQ(item.fields[1].size(), sizeof(sizes));
  std::memcpy(sizes, item.fields[1].data(), sizeof(sizes));
  int64_t patches = 0;
  int filled = 0;
  for (const auto& [height, width] : sizes) {
    patches += height * width;
    filled += height != 0;
  }
  EXPECT_EQ(patches, item.lengths.input_rows);
  EXPECT_EQ(filled, 7) << "a whole picture of 41x29 and six slices";
  EXPECT_EQ(item.lengths.output_rows * 16, item.lengths.input_rows);
}

TEST(MiniCpmV46, SlicesStandInRowsAfterTheWholePicture) {
  const ProcessorSpec spec = MiniCpmSpec({{"max_slice_nums", 6}});
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  std::vector<PlaceholderRun> runs;
  ASSERT_TRUE((*family)->Placeholders(PictureFacts(1344, 896), runs).ok());
  const MediumStyle style = PictureStyleOf(**family);
  std::string said;
  uint32_t rows = 0;
  for (const PlaceholderRun& run : runs) {
    said += run.text;
    if (run.numbered) said += "#";
    if (run.token.has_value()) said += style.tokens[*run.token];
    rows += run.rows;
  }
  const std::string slice = "<slice></slice>", row = slice + slice + slice;
  EXPECT_EQ(said, "<image_id>#</image_id><image></image>" + row + "\n" + row);
  EXPECT_EQ(rows, (*family)->Measure(PictureFacts(1344, 896))->output_rows);
  ASSERT_TRUE((*family)->Placeholders(PictureFacts(448, 448), runs).ok());
  EXPECT_EQ(runs.size(), 5u) << "is not cut";
}

TEST(MiniCpmV46, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys,
                          const std::map<std::string, nlohmann::json>& files = {}) {
    return std::string(Processor::LoadMedia(MiniCpmSpec(keys, files), Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"slice_mode", false}, {"processor_class", "MiniCPMV4_6Processor"}}), "");
  EXPECT_EQ(
      refusal(nullptr, {{"video_preprocessor_config.json", {{"stack_frames", 3}, {"max_num_frames", 9}}}}),
      "");
  EXPECT_THAT(refusal({{"processor_class", "MiniCPMV4_7Processor"}}), HasSubstr("MiniCPMV4_7Processor"));
  EXPECT_THAT(refusal({{"downsample_mode", "2x"}}), HasSubstr("downsample_mode"));
  EXPECT_THAT(refusal({{"do_resize", false}}), HasSubstr("do_resize"));
  EXPECT_THAT(refusal({{"do_slice", true}}), HasSubstr("do_slice: unknown key"));
}

MediaFacts FilmFacts(uint32_t width, uint32_t height, uint32_t frames, uint32_t fps) {
  MediaFacts facts = PictureFacts(width, height);
  facts.medium = Medium::kVideo;
  facts.num_frames = frames;
  facts.fps_num = fps, facts.fps_den = 1;
  return facts;
}

ProcessorSpec MiniCpmFilms(nlohmann::json keys) {
  keys["video_processor_type"] = "MiniCPMV4_6VideoProcessor";
  return MiniCpmSpec(nullptr, {{"video_preprocessor_config.json", keys}});
}

TEST(MiniCpmV46, FramesAreTheFirstOfEachSecond) {
  const ProcessorSpec spec = MiniCpmFilms({{"max_num_frames", 5}, {"slice_mode", false}});
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  const uint32_t patches = 32 * 32;
  EXPECT_EQ(*(*family)->Measure(FilmFacts(448, 448, 25, 10)),
            (ItemLengths{3 * patches, 3 * patches, 3 * 64}));
  EXPECT_EQ((*family)->Measure(FilmFacts(448, 448, 2000, 25))->input_rows, 5 * patches) << "of a long one";
  EXPECT_EQ((*family)->Measure(FilmFacts(448, 448, 1, 10))->input_rows, patches);
  std::vector<PlaceholderRun> runs;
  ASSERT_TRUE((*family)->Placeholders(FilmFacts(448, 448, 25, 10), runs).ok());
  EXPECT_EQ(runs.size(), 2u + 3 * 3) << "one number, and three runs a frame";
  EXPECT_TRUE(runs[1].numbered);
  Dice dice(3);
  for (int i = 0; i < 100; ++i) ExpectOneNumber(**family, RandomFacts(Medium::kVideo, dice));
}

TEST(MiniCpmV46, VideosThatAreNotImplementedSayWhy) {
  const auto said = [](const ProcessorSpec& spec) {
    auto processor = Processor::LoadMedia(spec, Limits{});
    if (!processor.ok()) return std::string(processor.status().message());
    return std::string((*processor)->Measure(FilmFacts(64, 64, 25, 10)).status().message());
  };
  EXPECT_EQ(said(MiniCpmFilms({{"use_image_id", false}, {"stack_frames", 1}})), "");
  EXPECT_THAT(said(MiniCpmSpec()), HasSubstr("only MiniCPMV4_6VideoProcessor is implemented"));
  EXPECT_THAT(said(MiniCpmFilms({{"stack_frames", 3}})), HasSubstr("stack_frames: is above 1"));
  EXPECT_THAT(said(MiniCpmFilms({{"max_num_frames", 0}})), HasSubstr("max_num_frames"));
  EXPECT_THAT(said(MiniCpmFilms({{"downsample_mode", "2x"}})), HasSubstr("downsample_mode"));
  ProcessorSpec spec = MiniCpmFilms({});
  spec.fps = 2;
  EXPECT_THAT(said(spec), HasSubstr("processor.fps: this family's processor takes a frame a second"));
}

}  // namespace
}  // namespace evenkeel::preprocess
