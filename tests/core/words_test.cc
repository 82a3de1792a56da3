#include "core/words.h"

#include "gtest/gtest.h"

namespace evenkeel {
namespace {

TEST(Words, PhaseNamesRoundTrip) {
  for (Phase phase : kAllPhases) EXPECT_EQ(PhaseFromName(PhaseName(phase)), phase);
  EXPECT_EQ(PhaseFromName("LLM"), std::nullopt);
  EXPECT_EQ(PhaseFromName(""), std::nullopt);
}

TEST(Words, EveryMediumHasANameAndAPhase) {
  EXPECT_EQ(MediumName(Medium::kText), "text");
  EXPECT_EQ(MediumName(Medium::kImage), "image");
  EXPECT_EQ(MediumName(Medium::kVideo), "video");
  EXPECT_EQ(MediumName(Medium::kAudio), "audio");
  EXPECT_EQ(PhaseOf(Medium::kText), Phase::kLlm);
  EXPECT_EQ(PhaseOf(Medium::kImage), Phase::kVision);
  EXPECT_EQ(PhaseOf(Medium::kVideo), Phase::kVision);
  EXPECT_EQ(PhaseOf(Medium::kAudio), Phase::kAudio);
}

}  // namespace
}  // namespace evenkeel
