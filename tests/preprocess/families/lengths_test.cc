// Lengths from headers and lengths of what is delivered are one thing, for every family and medium.
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"
#include "tests/preprocess/families/random_facts.h"

namespace evenkeel::preprocess {
namespace {

TEST(Lengths, OfHeadersFieldsAndPlaceholdersAreOneForEveryFamily) {
  Dice dice(11);
  int pictures = 0, clips = 0;
  for (const std::string& name : GoldenCheckpoints()) {
    SCOPED_TRACE(name);
    const ProcessorSpec spec = VisionSpec(name, "aten_u8");
    auto vision = LoadVisionFamily(spec.vision, spec, Limits{});
    auto audio = LoadAudioFamily(spec.vision, spec, Limits{});
    ASSERT_TRUE(vision.ok() || audio.ok()) << vision.status() << "\n" << audio.status();
    pictures += vision.ok(), clips += audio.ok();
    for (int i = 0; vision.ok() && i < 1500; ++i) {
      ExpectOneNumber(**vision, RandomFacts(i % 2 == 0 ? Medium::kImage : Medium::kVideo, dice));
    }
    for (int i = 0; audio.ok() && i < 1500; ++i) ExpectOneNumber(**audio, RandomFacts(Medium::kAudio, dice));
  }
  EXPECT_GE(pictures, 25);
  EXPECT_GE(clips, 8);
}

TEST(Lengths, OfDecodedItemsAreThoseOfTheirHeaders) {
  int pictures = 0, videos = 0;
  for (const std::string& name : GoldenCheckpoints()) {
    const ProcessorSpec spec = VisionSpec(name, "aten_u8");
    auto family = LoadVisionFamily(spec.vision, spec, Limits{});
    if (!family.ok()) continue;  // clips alone
    int made = 0;
    for (const char* picture : {"dot", "high", "scene", "square", "wide"}) {
      Item item = Make(spec, Medium::kImage, std::string("pictures/") + picture + ".png");
      made += item.status.ok();
      // A family may refuse a shape, by the header alone.
      EXPECT_TRUE(item.status.ok() || (absl::IsInvalidArgument(item.status) && item.fields.empty()))
          << name << " " << picture << " " << item.status;
    }
    EXPECT_GE(made, 3) << name;
    ++pictures;
    if ((*family)->fields(Medium::kVideo).empty()) continue;
    Item item = Make(spec, Medium::kVideo, "video/vp9.webm");
    EXPECT_TRUE(item.status.ok()) << name << " " << item.status;
    ++videos;
  }
  EXPECT_GE(pictures, 25);
  EXPECT_GE(videos, 5);
}

}  // namespace
}  // namespace evenkeel::preprocess
