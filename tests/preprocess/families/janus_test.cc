// Janus, DeepSeek-VL: the size of a picture, its placeholders, what is refused. tests/preprocess/test_parity_recent.py
// compares their values.
#include "preprocess/families/janus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

ProcessorSpec JanusSpec(const nlohmann::json& keys = nullptr, const nlohmann::json& outer = nullptr) {
  nlohmann::json own = {{"num_image_tokens", 9}};
  for (const auto& [key, value] : outer.items()) own[key] = value;
  return ConfiguredSpec({{"image_processor_type", "JanusImageProcessor"},
                         {"processor_class", "JanusProcessor"},
                         {"size", {{"height", 48}, {"width", 48}}}},
                        keys, {{"processor_config.json", own}});
}

TEST(Janus, TheLongerSideFillsTheSquare) {
  EXPECT_EQ(FittedSize({768, 384}, 384, 14), (ImageSize{384, 192}));
  EXPECT_EQ(FittedSize({100, 100}, 384, 14), (ImageSize{384, 384}));
  EXPECT_EQ(FittedSize({4000, 10}, 384, 14), (ImageSize{384, 14})) << "the shorter one has a least size";
  EXPECT_EQ(FittedSize({3, 2}, 3, 1), (ImageSize{3, 2}));
  EXPECT_EQ(FittedSize({4, 10}, 5, 1), (ImageSize{2, 5}));
  EXPECT_EQ(FittedSize({10, 5}, 5, 1), (ImageSize{5, 2})) << "halves to even";
}

TEST(Janus, PixelsAreThoseOfTheProcessors) {
  ExpectPixelsOf("janus");
  ExpectPixelsOf("deepseek-vl");
}

TEST(Janus, EveryWireFormHasTheSameValues) { ExpectWireFormsAgree(JanusSpec(), "pictures/wide.png"); }

TEST(Janus, AroundThePictureIsTheMeanColour) {
  ProcessorSpec spec = JanusSpec();
  spec.wire = Wire::kU8;
  const Item item = Make(spec, Medium::kImage, "pictures/wide.png");  // 41x5
  ASSERT_TRUE(item.status.ok()) << item.status;
  ASSERT_EQ(item.fields[0].size(), 3u * 48 * 48);
  EXPECT_EQ(item.lengths.output_rows, 9u);
  // 14 rows of the picture are in the middle, 17 above and below.
  for (const auto& [channel, mean] : {std::pair(0, 122), {1, 116}, {2, 104}}) {
    for (const int y : {0, 16, 31, 47}) {
      EXPECT_EQ(std::to_integer<int>(item.fields[0][48 * (48 * channel + y) + 7]), mean) << y;
    }
  }
}

TEST(Janus, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys, const nlohmann::json& outer = nullptr) {
    return std::string(Processor::LoadMedia(JanusSpec(keys, outer), Limits{}).status().message());
  };
  EXPECT_EQ(refusal({{"min_size", 20}}), "");
  EXPECT_THAT(refusal({{"do_pad", false}}), HasSubstr("do_pad"));
  EXPECT_THAT(refusal({{"do_resize", false}}), HasSubstr("do_resize"));
  EXPECT_THAT(refusal({{"min_size", 400}}), HasSubstr("above the side of 48 pixels"));
  EXPECT_THAT(refusal({{"processor_class", "OtherProcessor"}}), HasSubstr("only JanusProcessor"));
  EXPECT_THAT(refusal({{"pad_colour", 3}}), HasSubstr("pad_colour"));
  EXPECT_THAT(refusal(nullptr, {{"use_default_system_prompt", true}}),
              HasSubstr("use_default_system_prompt"));
}

}  // namespace
}  // namespace evenkeel::preprocess
