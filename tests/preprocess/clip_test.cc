// The families of one picture of a fixed size: CLIP, SigLIP, LLaVA.
#include "preprocess/clip.h"

#include <gtest/gtest.h>

#include "tests/preprocess/family_golden.h"

namespace evenkeel {
namespace {

TEST(Clip, PixelsAreThoseOfTransformers) { ExpectPixelsOf("clip"); }
TEST(Siglip, PixelsAreThoseOfTransformers) { ExpectPixelsOf("siglip"); }
TEST(Llava, PixelsAreThoseOfTransformers) { ExpectPixelsOf("llava"); }
TEST(Llava, PaddedPixelsAreThoseOfTransformers) { ExpectPixelsOf("llava-pad"); }
TEST(Llava, TheWireFormExpandsToTheSameFloats) { ExpectExpansionGivesTheFloats("llava"); }

TEST(Clip, ShortestEdgesAreThoseOfTransformersForEverySize) {
  for (const nlohmann::json& example : FamilyGolden("canvas", "shortest_edge_336")) {
    EXPECT_EQ(ShortestEdgeSize({example[0], example[1]}, 336), (ImageSize{example[2], example[3]}))
        << example;
  }
}

TEST(Clip, ALongerSideThatNoNumberHoldsIsTheLargest) {
  EXPECT_EQ(ShortestEdgeSize({1, UINT32_MAX}, 336), (ImageSize{336, UINT32_MAX}));
  EXPECT_EQ(ShortestEdgeSize({UINT32_MAX, 2}, 336), (ImageSize{UINT32_MAX, 336}));
}

TEST(Clip, CropsBeginInTheMiddleAndPadAsTheirPathDoes) {
  EXPECT_EQ(CropBegin(337, 336, Resampler::kPil), 0);
  EXPECT_EQ(CropBegin(338, 336, Resampler::kAtenU8), 1);
  EXPECT_EQ(CropBegin(333, 336, Resampler::kPil), -2);
  EXPECT_EQ(CropBegin(333, 336, Resampler::kAtenU8), -1);
}

TEST(Clip, EveryPictureHasTheSameLengths) {
  struct Family {
    const char* processor;
    uint32_t tokens;
  };
  for (const Family& family : {Family{"clip", 49}, {"siglip", 729}, {"llava", 576}, {"llava-pad", 576}}) {
    auto processor = LoadOrFail(VisionSpec(family.processor));
    for (uint32_t side : {1u, 300u, 5000u}) {
      MediaFacts facts;
      facts.width = side;
      facts.height = 700;
      EXPECT_EQ(*processor->Measure(facts), (ItemLengths{family.tokens, 1, family.tokens}))
          << family.processor;
    }
  }
}

}  // namespace
}  // namespace evenkeel
