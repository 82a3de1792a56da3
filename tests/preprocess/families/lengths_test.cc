// Lengths from headers and lengths of what is delivered are one thing, for every family and medium.
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"
#include "tests/preprocess/families/random_facts.h"

namespace evenkeel::preprocess {
namespace {

TEST(Lengths, OfHeadersFieldsAndPlaceholdersAreOneForEveryFamily) {
  Dice dice(11);
  for (const char* name :
       {"blip",       "clip",     "convnext",  "deit",    "gemma3",     "gemma3n",         "glm4v",
        "idefics3",   "internvl", "llama4",    "llava",   "llava-next", "llava-onevision", "llava-pad",
        "mistral3",   "mllama",   "paligemma", "pixtral", "qwen2-vl",   "qwen2_5-omni",    "qwen2_5-vl",
        "qwen3-omni", "qwen3-vl", "siglip"}) {
    SCOPED_TRACE(name);
    const ProcessorSpec spec = VisionSpec(name, "aten_u8");
    auto family = LoadVisionFamily(spec.vision, spec, Limits{});
    ASSERT_TRUE(family.ok()) << family.status();
    for (int i = 0; i < 1500; ++i) {
      ExpectOneNumber(**family, RandomFacts(i % 2 == 0 ? Medium::kImage : Medium::kVideo, dice));
    }
  }
  for (const char* name : {"audioflamingo3", "glmasr", "qwen2-audio", "qwen2_5-omni", "qwen3-asr",
                           "qwen3-omni", "voxtral", "whisper"}) {
    SCOPED_TRACE(name);
    ProcessorSpec spec;
    spec.audio = GoldenPath(std::string("processors/") + name);
    auto family = LoadAudioFamily(spec.audio, spec, Limits{});
    ASSERT_TRUE(family.ok()) << family.status();
    for (int i = 0; i < 1500; ++i) ExpectOneNumber(**family, RandomFacts(Medium::kAudio, dice));
  }
}

TEST(Lengths, OfDecodedItemsAreThoseOfTheirHeaders) {
  for (const char* name :
       {"blip",     "clip",      "convnext", "deit",       "gemma3",          "gemma3n",   "glm4v",
        "idefics3", "internvl",  "llama4",   "llava-next", "llava-onevision", "llava-pad", "mistral3",
        "mllama",   "paligemma", "pixtral",  "qwen2-vl",   "qwen3-vl",        "siglip"}) {
    for (const char* picture : {"dot", "high", "scene", "square", "wide"}) {
      Item item =
          Make(VisionSpec(name, "aten_u8"), Medium::kImage, std::string("pictures/") + picture + ".png");
      EXPECT_TRUE(item.status.ok()) << name << " " << picture << " " << item.status;
    }
  }
  for (const char* name : {"internvl", "qwen2-vl", "qwen3-vl"}) {
    Item item = Make(VisionSpec(name), Medium::kVideo, "video/vp9.webm");
    EXPECT_TRUE(item.status.ok()) << name << " " << item.status;
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
