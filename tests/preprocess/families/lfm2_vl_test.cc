// LFM2-VL: sizes and grids of pictures, their rows and placeholders, what is refused.
#include "preprocess/families/lfm2_vl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

// Tiles of 64 pixels, 4x4 patches and 4 tokens each.
ProcessorSpec Lfm2Spec(const nlohmann::json& keys = nullptr, const nlohmann::json& outer = nullptr) {
  return ConfiguredSpec({{"image_processor_type", "Lfm2VlImageProcessor"},
                         {"processor_class", "Lfm2VlProcessor"},
                         {"tile_size", 64},
                         {"min_image_tokens", 1},
                         {"max_image_tokens", 6}},
                        keys,
                        {{"processor_config.json", outer.is_null() ? nlohmann::json::object() : outer}});
}

TEST(Lfm2Vl, AWholePictureIsWithinItsTokens) {
  const Lfm2Rules rules;
  EXPECT_EQ(Lfm2Size({512, 512}, rules), (ImageSize{512, 512}));
  EXPECT_EQ(Lfm2Size({100, 50}, rules), (ImageSize{384, 192})) << "enlarged to 64 tokens and more";
  EXPECT_EQ(Lfm2Size({2000, 1000}, rules), (ImageSize{704, 352}));
  EXPECT_EQ(Lfm2Size({640, 16}, rules), (ImageSize{1632, 64}));
}

TEST(Lfm2Vl, OnlyMuchLargerPicturesAreCut) {
  const Lfm2Rules rules;
  EXPECT_EQ(Lfm2Grid({720, 720}, rules), (TileGrid{1, 1}));
  EXPECT_EQ(Lfm2Grid({1024, 1024}, rules), (TileGrid{2, 2}));
  EXPECT_EQ(Lfm2Grid({2000, 1000}, rules), (TileGrid{4, 2}));
  EXPECT_EQ(Lfm2Grid({4000, 300}, rules), (TileGrid{10, 1}));
  EXPECT_EQ(Lfm2Grid({2000, 1000}, {.splits = false}), (TileGrid{1, 1}));
}

TEST(Lfm2Vl, PixelsAreThoseOfTheProcessor) { ExpectPixelsOf("lfm2-vl", /*at_least=*/5); }

TEST(Lfm2Vl, RowsAreFilledUpAndTheMaskSaysWhere) {
  const Item item = Make(Lfm2Spec(), Medium::kImage, "pictures/scene.png");  // 41x29, which becomes 32x32
  ASSERT_TRUE(item.status.ok()) << item.status;
  EXPECT_EQ(item.lengths.input_rows, 1u);
  EXPECT_EQ(item.lengths.output_rows, 1u);
  ASSERT_EQ(item.fields.size(), 3u);
  ASSERT_EQ(item.fields[0].size(), 24u * 768 * sizeof(float)) << "6 tokens of 4 patches";
  int64_t mask[24], shape[2];
  ASSERT_EQ(item.fields[1].size(), sizeof(mask));
  ASSERT_EQ(item.fields[2].size(), sizeof(shape));
  std::memcpy(mask, item.fields[1].data(), sizeof(mask));
  std::memcpy(shape, item.fields[2].data(), sizeof(shape));
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[1], 2);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(mask[i], i < 4 ? 1 : 0);
  for (size_t i = 4u * 768 * sizeof(float); i < item.fields[0].size(); ++i)
    ASSERT_EQ(item.fields[0][i], std::byte{0});
}

TEST(Lfm2Vl, ATokenOfItsPlaceStandsBeforeEveryTile) {
  const ProcessorSpec spec = Lfm2Spec({{"max_tiles", 4}});
  auto family = LoadVisionFamily(spec.vision, spec, Limits{});
  ASSERT_TRUE(family.ok()) << family.status();
  MediaFacts facts;
  facts.width = 200, facts.height = 200;
  EXPECT_EQ((*family)->Measure(facts)->input_rows, 5u);
  EXPECT_EQ((*family)->Measure(facts)->output_rows, 4u * 4 + 4);
  std::vector<PlaceholderRun> runs;
  ASSERT_TRUE((*family)->Placeholders(facts, runs).ok());
  std::vector<std::string> tokens;
  for (const PlaceholderRun& run : runs) {
    if (run.token.has_value()) tokens.push_back(PictureStyleOf(**family).tokens[*run.token]);
  }
  EXPECT_EQ(tokens, (std::vector<std::string>{"<|image_start|>", "<|img_row_1_col_1|>", "<|img_row_1_col_2|>",
                                              "<|img_row_2_col_1|>", "<|img_row_2_col_2|>",
                                              "<|img_thumbnail|>", "<|image_end|>"}));
}

TEST(Lfm2Vl, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys, const nlohmann::json& outer = nullptr) {
    return std::string(Processor::LoadMedia(Lfm2Spec(keys, outer), Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"max_tiles", 4}, {"do_resize", false}}), "");
  EXPECT_THAT(refusal({{"tile_size", 100}}), HasSubstr("whole tokens of 32 pixels"));
  EXPECT_THAT(refusal({{"min_tiles", 3}, {"max_tiles", 2}}), HasSubstr("is above max_tiles"));
  EXPECT_THAT(refusal({{"do_pad", false}}), HasSubstr("do_pad"));
  EXPECT_THAT(refusal({{"tiles", 4}}), HasSubstr("tiles"));
  EXPECT_THAT(refusal(nullptr, {{"use_image_special_tokens", false}}), HasSubstr("use_image_special_tokens"));
  const auto processor = LoadOrFail(Lfm2Spec());
  ASSERT_NE(processor, nullptr);
  MediaFacts facts;
  facts.width = 500, facts.height = 4;
  EXPECT_THAT(std::string(processor->Measure(facts).status().message()), HasSubstr("at most 24"));
}

}  // namespace
}  // namespace evenkeel::preprocess
