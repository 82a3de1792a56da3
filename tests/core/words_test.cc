#include "core/words.h"

#include "gtest/gtest.h"
#include "tests/usual_phases.h"

namespace evenkeel {
namespace {

TEST(Words, PhaseNamesRoundTrip) {
  for (Phase phase : kUsualPhases) EXPECT_EQ(UsualPhase(PhaseName(phase)), phase);
  EXPECT_EQ(UsualPhase("LLM"), std::nullopt);
  EXPECT_EQ(UsualPhase(""), std::nullopt);
}

TEST(Words, APhaseIsKnownByItsName) {
  const Phase tower("tower", 3, {Medium::kImage});
  EXPECT_EQ(tower, Phase("tower"));
  EXPECT_NE(tower, Phase("tower2", 3, {Medium::kImage}));
  EXPECT_EQ(tower.Numbered(5).number(), 5);
  EXPECT_TRUE(tower.encodes(Medium::kImage));
  EXPECT_FALSE(tower.encodes(Medium::kVideo));
  EXPECT_EQ(MediaNames(kVisionPhase), "image,video");
  EXPECT_EQ(MediaNames(Phase::kLlm), "");
}

TEST(Words, AGeneratorTakesItemsThatItDoesNotEncode) {
  Phase draw("draw", 3, {Medium::kImage});
  draw.BecomeGenerator();
  EXPECT_TRUE(draw.is_generator() && draw.generates(Medium::kImage) && draw.takes(Medium::kImage));
  EXPECT_FALSE(draw.encodes(Medium::kImage) || draw.takes(Medium::kAudio));
  EXPECT_EQ(MediaNames(draw), "image");
  EXPECT_TRUE(draw.Numbered(5).is_generator());
  EXPECT_FALSE(kVisionPhase.is_generator() || kVisionPhase.generates(Medium::kImage));
}

TEST(Words, NamesOfPhasesAreShortWords) {
  for (const char* name : {"llm", "a", "tower-2", "eva_clip", "abcdefghijklmnopqrstuvwxyz01"}) {
    EXPECT_TRUE(IsPhaseName(name)) << name;
  }
  for (const char* name : {"", "2nd", "Tower", "a b", "a.b", "-a", "abcdefghijklmnopqrstuvwxyz012"}) {
    EXPECT_FALSE(IsPhaseName(name)) << name;
  }
}

TEST(Words, EveryMediumHasANameAndAPhase) {
  EXPECT_EQ(MediumName(Medium::kText), "text");
  EXPECT_EQ(MediumName(Medium::kImage), "image");
  EXPECT_EQ(MediumName(Medium::kVideo), "video");
  EXPECT_EQ(MediumName(Medium::kAudio), "audio");
  EXPECT_EQ(UsualPhaseOf(Medium::kImage), kVisionPhase);
  EXPECT_EQ(UsualPhaseOf(Medium::kVideo), kVisionPhase);
  EXPECT_EQ(UsualPhaseOf(Medium::kAudio), kAudioPhase);
}

}  // namespace
}  // namespace evenkeel
