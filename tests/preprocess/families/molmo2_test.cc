// Molmo 2: grids of crops, patches and their pooling, text of pictures and frames, what is refused.
#include "preprocess/families/molmo2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/preprocess/families/family_golden.h"
#include "tests/preprocess/families/random_facts.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ProcessorSpec MolmoSpec(const nlohmann::json& keys = nullptr,
                        const std::map<std::string, nlohmann::json>& files = {}) {
  ProcessorSpec spec = ConfiguredSpec({{"image_processor_type", "Molmo2ImageProcessor"}}, keys, files);
  spec.resampler = "aten_u8";
  return spec;
}

const std::map<std::string, nlohmann::json> kMolmoVideo = {
    {"video_preprocessor_config.json", {{"video_processor_type", "Molmo2VideoProcessor"}}}};

// What runs write, with the number of their rows.
std::string Spelled(const MediumStyle& style, const std::vector<PlaceholderRun>& runs) {
  std::string out;
  for (const PlaceholderRun& run : runs) {
    out += run.text;
    if (run.token) out += style.tokens[*run.token];
    if (run.rows != 0) absl::StrAppend(&out, run.rows);
  }
  return out;
}

TEST(Molmo2, PixelsAreThoseOfTransformers) { ExpectPixelsOf("molmo2", 5); }

TEST(Molmo2, WireFormsAgree) {
  ExpectWireFormsAgree(VisionSpec("molmo2"), "pictures/scene.png", {"aten_u8"});
}

// By select_tiling of transformers 5.23.
TEST(Molmo2, GridsAreThoseOfTheProcessor) {
  const Molmo2Rules rules;
  const auto grid = [&](uint32_t width, uint32_t height) { return Molmo2Grid({width, height}, rules); };
  EXPECT_EQ(grid(300, 200), (TileGrid{1, 1}));
  EXPECT_EQ(grid(1, 1), (TileGrid{1, 1}));
  EXPECT_EQ(grid(640, 480), (TileGrid{2, 2}));
  EXPECT_EQ(grid(1500, 400), (TileGrid{5, 1}));
  EXPECT_EQ(grid(2000, 31), (TileGrid{1, 1}));
  EXPECT_EQ(grid(3000, 4000), (TileGrid{2, 3}));
  EXPECT_EQ(Molmo2Canvas({2, 3}, rules), (ImageSize{46 * 14, 65 * 14}));
}

TEST(Molmo2, EveryPatchOfTheCanvasIsPooledOnce) {
  const ProcessorSpec spec =
      MolmoSpec({{"max_crops", 6}, {"overlap_margins", {1, 3}}, {"pooling_size", {2, 3}}});
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  const MediaFacts facts{.width = 900, .height = 700};
  const ItemLengths lengths = *(*family)->Measure(facts);
  std::vector<Bytes> fields;
  for (const FieldSpec& field : (*family)->fields(Medium::kImage))
    fields.emplace_back(field.num_bytes(lengths));
  std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
  ASSERT_TRUE((*family)->WriteFacts({Medium::kImage, "", {}, facts, lengths}, spans).ok());
  std::vector<int64_t> pooling(fields[1].size() / sizeof(int64_t));
  std::memcpy(pooling.data(), fields[1].data(), fields[1].size());
  std::set<int64_t> seen;
  size_t used = 0;
  for (size_t i = 0; i < pooling.size(); ++i) {
    if (pooling[i] < 0) continue;
    EXPECT_TRUE(seen.insert(pooling[i]).second) << pooling[i];
    EXPECT_LT(pooling[i], int64_t{lengths.input_rows} * 27 * 27);
    used = i / 6 + 1;
  }
  const Molmo2Rules rules{.max_crops = 6, .before = 1, .after = 3};
  const ImageSize canvas = Molmo2Canvas(Molmo2Grid({900, 700}, rules), rules);
  EXPECT_EQ(seen.size(), 27 * 27 + canvas.width / 14 * (canvas.height / 14));
  EXPECT_EQ(used, lengths.output_rows) << "the rest is filled up";
}

TEST(Molmo2, TextHasTheWholePictureThenTheCrops) {
  const auto said = [](const nlohmann::json& words) {
    const ProcessorSpec spec = MolmoSpec({{"size", 70}, {"overlap_margins", {1, 1}}, {"max_crops", 1}},
                                         {{"processor_config.json", words}});
    auto family = LoadVisionFamily(spec.vision, spec, Limits{});
    EXPECT_TRUE(family.ok()) << family.status();
    std::vector<PlaceholderRun> runs;
    EXPECT_TRUE((*family)->Placeholders({.width = 50, .height = 50}, runs).ok());
    return Spelled(PictureStyleOf(**family), runs);
  };
  const std::string rows = "3<im_col>3<im_col>3<im_col><im_end>";
  EXPECT_EQ(said(nlohmann::json::object()), "<low_res_im_start>" + rows + "<im_start>" + rows);
  EXPECT_EQ(said({{"use_single_crop_col_tokens", false}, {"use_single_crop_start_token", false}}),
            "<im_start>9<im_end><im_start>" + rows);
  EXPECT_EQ(said({{"image_use_col_tokens", nullptr}}), "<low_res_im_start>9<im_end><im_start>9<im_end>");
}

TEST(Molmo2, FramesStandAfterTheirTimes) {
  const ProcessorSpec spec = MolmoSpec(nullptr, kMolmoVideo);
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  MediaFacts facts{.medium = Medium::kVideo, .width = 64, .height = 48};
  facts.num_frames = 30, facts.fps_num = 10, facts.fps_den = 1;
  EXPECT_EQ(*(*family)->Measure(facts), (ItemLengths{6 * 729, 6, 6 * 81})) << "two a second";
  std::vector<PlaceholderRun> runs;
  ASSERT_TRUE((*family)->Placeholders(facts, runs).ok());
  EXPECT_THAT(Spelled((*family)->styles()[1], runs),
              HasSubstr("0.0 <frame_start>81<frame_end> 0.5 <frame_start>81<frame_end> 1.0 <frame_start>"));
  Dice dice(9);
  for (int i = 0; i < 300; ++i) {
    ExpectOneNumber(**family, RandomFacts(i % 2 == 0 ? Medium::kImage : Medium::kVideo, dice));
  }
}

TEST(Molmo2, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) {
    return std::string(Processor::LoadMedia(MolmoSpec(keys, kMolmoVideo), Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"resample", 3}, {"max_crops", 24}}), "");
  EXPECT_THAT(refusal({{"resample", 1}}), HasSubstr("resample: only bilinear and bicubic"));
  EXPECT_THAT(refusal({{"size", 56}}), HasSubstr("size: is not above 64 pixels"));
  EXPECT_THAT(refusal({{"size", 379}}), HasSubstr("size: is 379 pixels, which are not whole patches of 14"));
  EXPECT_THAT(refusal({{"overlap_margins", {20, 7}}}), HasSubstr("overlap_margins: are 27 patches together"));
  EXPECT_THAT(refusal({{"overlap_margins", nullptr}}), HasSubstr("overlap_margins"));
  EXPECT_THAT(refusal({{"pooling_size", {0, 2}}}), HasSubstr("pooling_size"));
  EXPECT_THAT(refusal({{"max_crops", 65}}), HasSubstr("max_crops"));
  EXPECT_THAT(refusal({{"do_sharpen", true}}), HasSubstr("do_sharpen: unknown key"));
}

TEST(Molmo2, VideosAreRefusedWhereTheProcessorFails) {
  const auto refusal = [](const nlohmann::json& keys) {
    nlohmann::json file = kMolmoVideo.begin()->second;
    file.update(keys);
    const ProcessorSpec spec = MolmoSpec(nullptr, {{"video_preprocessor_config.json", file}});
    auto family = LoadVisionFamily(spec.vision, spec, Limits{});
    if (!family.ok()) return std::string(family.status().message());
    MediaFacts facts{.medium = Medium::kVideo, .width = 64, .height = 48};
    facts.num_frames = 30, facts.fps_num = 10, facts.fps_den = 1;
    return std::string((*family)->Measure(facts).status().message());
  };
  EXPECT_EQ(refusal({{"max_fps", 5}, {"num_frames", 7}}), "");
  EXPECT_THAT(refusal({{"fps", 2}}), HasSubstr("fps: is given"));
  EXPECT_THAT(refusal({{"max_fps", 0}}), HasSubstr("max_fps: is not positive"));
  EXPECT_THAT(refusal({{"video_processor_type", "OtherVideoProcessor"}}),
              HasSubstr("only Molmo2VideoProcessor is implemented"));
}

}  // namespace
}  // namespace evenkeel::preprocess
