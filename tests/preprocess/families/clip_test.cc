// The families of one picture of a fixed size: CLIP, SigLIP, ViT, BLIP, DeiT, ConvNeXT, LLaVA.
#include "preprocess/families/clip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "preprocess/resize/resize.h"
#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using testing::HasSubstr;

// A checkpoint of these files, for the test that runs.
ProcessorSpec Checkpoint(const std::string& image_processor, const std::string& outer = "{}",
                         const std::string& model = "{}") {
  const std::string folder =
      testing::TempDir() + "clip_test_" + testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/preprocessor_config.json") << image_processor;
  std::ofstream(folder + "/processor_config.json") << outer;
  std::ofstream(folder + "/config.json") << model;
  ProcessorSpec spec;
  spec.vision = folder;
  spec.resampler = "pil";
  spec.wire = Wire::kU8;
  return spec;
}

TEST(Clip, PixelsAreThoseOfTransformers) { ExpectPixelsOf("clip"); }
TEST(Siglip, PixelsAreThoseOfTransformers) { ExpectPixelsOf("siglip"); }
TEST(Llava, PixelsAreThoseOfTransformers) { ExpectPixelsOf("llava"); }
TEST(Llava, PaddedPixelsAreThoseOfTransformers) { ExpectPixelsOf("llava-pad"); }
TEST(Blip, PixelsAreThoseOfTransformers) { ExpectPixelsOf("blip"); }
TEST(Deit, PixelsAreThoseOfTransformers) { ExpectPixelsOf("deit"); }
TEST(ConvNext, PixelsAreThoseOfTransformers) { ExpectPixelsOf("convnext"); }
TEST(Clip, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("clip"); }
TEST(Siglip, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("siglip"); }
TEST(Blip, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("blip"); }
TEST(Deit, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("deit"); }
TEST(ConvNext, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("convnext"); }
TEST(Llava, EveryWireFormSaysTheSame) { ExpectWireFormsAgree("llava"); }
TEST(Llava, EveryWireFormSaysTheSameOfPaddedPictures) { ExpectWireFormsAgree("llava-pad"); }

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

// The middle of `resized`, as planes; black beyond it.
Bytes MiddleOf(const std::vector<uint8_t>& resized, ImageSize size, uint32_t side) {
  Bytes out(size_t{3} * side * side);
  const int32_t left = CropBegin(size.width, side, Resampler::kPil);
  const int32_t top = CropBegin(size.height, side, Resampler::kPil);
  for (uint32_t y = 0; y < side; ++y) {
    for (uint32_t x = 0; x < side; ++x) {
      const int64_t from_x = int64_t{x} + left, from_y = int64_t{y} + top;
      if (from_x < 0 || from_x >= size.width || from_y < 0 || from_y >= size.height) continue;
      for (size_t c = 0; c < 3; ++c) {
        out[(c * side + y) * side + x] = std::byte{resized[(from_y * size.width + from_x) * 3 + c]};
      }
    }
  }
  return out;
}

TEST(Clip, WhatBecomesAFixedSizeIsCroppedInItsMiddle) {
  const Bytes scene = Golden("images/scene.rgb");
  std::vector<uint8_t> rgb(scene.size());
  std::memcpy(rgb.data(), scene.data(), scene.size());
  for (ImageSize size : {ImageSize{50, 40}, {30, 30}, {31, 29}, {20, 60}, {11, 14}}) {
    SCOPED_TRACE(testing::Message() << size.width << "x" << size.height);
    const std::string height = std::to_string(size.height), width = std::to_string(size.width);
    const ProcessorSpec spec =
        Checkpoint(R"({"image_processor_type": "CLIPImageProcessor", "crop_size": 30, "size": {"height": )" +
                   height + R"(, "width": )" + width + "}}");
    Item item = Make(spec, Medium::kImage, "images/scene.png");
    ASSERT_TRUE(item.status.ok()) << item.status;
    std::vector<uint8_t> resized(size.rgb_bytes());
    Resize(Resampler::kPil, ResizeFilter::kBicubic, rgb, {41, 29}, resized, size);
    EXPECT_EQ(item.fields[0], MiddleOf(resized, size, 30));
  }
}

TEST(Clip, EveryWireFormSaysTheSameWhateverThePicturesBecome) {
  for (const char* keys :
       {R"("size": {"height": 40, "width": 64}, "do_center_crop": false)",
        R"("size": {"shortest_edge": 30}, "crop_size": {"height": 20, "width": 45})",
        R"("size": {"shortest_edge": 30, "longest_edge": 33}, "crop_size": {"height": 45, "width": 20})",
        R"("size": {"max_height": 30, "max_width": 33}, "crop_size": 31, "resample": 1)",
        R"("do_resize": false, "crop_size": {"height": 30, "width": 40}, "do_normalize": false)",
        R"("do_resize": false, "size": {"height": 29, "width": 41}, "do_center_crop": false,
           "do_normalize": false, "do_rescale": false)"}) {
    SCOPED_TRACE(keys);
    ExpectWireFormsAgree(
        Checkpoint(absl::StrCat(R"({"image_processor_type": "CLIPImageProcessor", )", keys, "}")),
        "images/scene.png");
  }
}

// The numbers are those of transformers' get_size_with_aspect_ratio and get_image_size_for_max_height_width.
TEST(Clip, EdgesAndBoundsGiveTheSizesOfTransformers) {
  const SideSizes edges{.shortest_edge = 64, .longest_edge = 96};
  EXPECT_EQ(ResizedBy(edges, {41, 29}), (ImageSize{90, 64}));
  EXPECT_EQ(ResizedBy(edges, {500, 20}), (ImageSize{96, 4}));
  EXPECT_EQ(ResizedBy(edges, {20, 500}), (ImageSize{4, 96}));
  EXPECT_EQ(ResizedBy(edges, {96, 64}), (ImageSize{96, 64}));
  EXPECT_EQ(ResizedBy({.shortest_edge = 64, .longest_edge = 65}, {300, 200}), (ImageSize{65, 43}));
  EXPECT_EQ(ResizedBy(edges, {10000, 20}), (ImageSize{96, 0}));  // which a picture is refused for
  const SideSizes most{.max_height = 80, .max_width = 60};
  EXPECT_EQ(ResizedBy(most, {41, 29}), (ImageSize{60, 42}));
  EXPECT_EQ(ResizedBy(most, {29, 41}), (ImageSize{56, 80}));
}

TEST(Clip, TheSizeBeforeACropIsPartOfTheDigest) {
  auto digest = [](const std::string& size) {
    return LoadOrFail(Checkpoint(R"({"image_processor_type": "CLIPImageProcessor", "size": )" + size + "}"))
        ->digest();
  };
  const Digest square = digest(R"({"height": 224, "width": 224})");
  EXPECT_NE(digest(R"({"height": 224, "width": 225})"), square);
  EXPECT_NE(digest(R"({"height": 225, "width": 224})"), square);
  EXPECT_NE(digest(R"({"shortest_edge": 224})"), square);
  EXPECT_NE(digest(R"({"shortest_edge": 224})"), digest(R"({"shortest_edge": 224, "longest_edge": 300})"));
  EXPECT_NE(digest(R"({"max_height": 224, "max_width": 300})"),
            digest(R"({"max_height": 300, "max_width": 224})"));
  const std::string as_it_is = R"({"height": 224, "width": 224}, "do_resize": false)";
  EXPECT_NE(digest(as_it_is), square);
  EXPECT_NE(digest(as_it_is + R"(, "do_center_crop": false)"), digest(as_it_is));
  EXPECT_NE(digest(R"({"height": 224, "width": 64}, "do_center_crop": false)"),
            digest(R"({"height": 64, "width": 224}, "do_center_crop": false)"));
}

// The rows of `rgb` as planes.
Bytes PlanesOf(const std::vector<uint8_t>& rgb) {
  const size_t pixels = rgb.size() / 3;
  Bytes out(rgb.size());
  for (size_t i = 0; i < rgb.size(); ++i) out[i % 3 * pixels + i / 3] = std::byte{rgb[i]};
  return out;
}

TEST(Vit, PicturesAreResizedBilinearlyToTheSquareByDefault) {
  const Bytes scene = Golden("images/scene.rgb");
  std::vector<uint8_t> rgb(scene.size());
  std::memcpy(rgb.data(), scene.data(), scene.size());
  struct Keys {
    const char* keys;
    ImageSize size;
    ResizeFilter filter;
  };
  for (const Keys& said : {Keys{"", {224, 224}, ResizeFilter::kBilinear},
                           {R"(, "size": 50)", {50, 50}, ResizeFilter::kBilinear},
                           {R"(, "size": {"height": 30, "width": 60})", {60, 30}, ResizeFilter::kBilinear},
                           {R"(, "size": 50, "resample": 3)", {50, 50}, ResizeFilter::kBicubic}}) {
    const Item item =
        Make(Checkpoint(absl::StrCat(
                 R"({"image_processor_type": "ViTImageProcessor", "do_center_crop": null)", said.keys, "}")),
             Medium::kImage, "images/scene.png");
    ASSERT_TRUE(item.status.ok()) << item.status;
    std::vector<uint8_t> resized(said.size.rgb_bytes());
    Resize(Resampler::kPil, said.filter, rgb, {41, 29}, resized, said.size);
    EXPECT_EQ(item.fields[0], PlanesOf(resized)) << said.keys;
  }
}

TEST(Vit, EveryWireFormSaysTheSame) {
  ExpectWireFormsAgree(Checkpoint(R"({"image_processor_type": "ViTImageProcessor", "size": 40})"),
                       "images/scene.png");
}

TEST(Vit, APatchIsATokenAndSixteenPixelsWideWhereTheModelSaysNothing) {
  MediaFacts facts;
  facts.width = 640, facts.height = 480;
  const std::string vit = R"({"image_processor_type": "ViTImageProcessorFast"})";
  EXPECT_EQ(*LoadOrFail(Checkpoint(vit))->Measure(facts), (ItemLengths{196, 1, 196}));
  EXPECT_EQ(
      *LoadOrFail(Checkpoint(vit, "{}", R"({"model_type": "ijepa", "patch_size": 14})"))->Measure(facts),
      (ItemLengths{256, 1, 256}));
}

TEST(ConvNext, KeysAreConsumedPinnedOrErrors) {
  auto refusal = [](const std::string& keys) {
    const ProcessorSpec spec =
        Checkpoint(R"({"image_processor_type": "ConvNextImageProcessor")" + keys + "}");
    return std::string(Processor::LoadMedia(spec, Limits{}).status().message());
  };
  EXPECT_EQ(refusal(R"(, "size": 224, "crop_pct": 0.9)"), "");
  EXPECT_EQ(refusal(R"(, "crop_pct": null)"), "") << "384 pixels are not cropped";
  EXPECT_NE(refusal(R"(, "size": 224, "crop_pct": null)").find("crop_pct: is null"), std::string::npos);
  EXPECT_NE(refusal(R"(, "size": 224, "crop_pct": 0)").find("crop_pct: makes edges of inf"),
            std::string::npos);
  EXPECT_NE(refusal(R"(, "size": {"height": 9, "width": 9})").find("size: is not"), std::string::npos);
  EXPECT_NE(refusal(R"(, "do_center_crop": true)").find("do_center_crop: is true"), std::string::npos);
}

// As DINOv2's checkpoints are written.
TEST(Clip, PicturesOfBitAreThoseOfClipByTheSameKeys) {
  auto make = [](const std::string& type) {
    return Make(Checkpoint(absl::StrCat(R"({"image_processor_type": ")", type,
                                        R"(", "size": {"shortest_edge": 40}, "crop_size": 35})")),
                Medium::kImage, "images/scene.png");
  };
  const Item bit = make("BitImageProcessor"), clip = make("CLIPImageProcessor");
  ASSERT_TRUE(bit.status.ok()) << bit.status;
  EXPECT_EQ(bit.fields, clip.fields);
}

// As llava-interleave's checkpoints are written.
TEST(Llava, PicturesOfSiglipHaveAPlaceholderForEachPatch) {
  const std::string images =
      R"({"image_processor_type": "SiglipImageProcessor", "processor_class": "LlavaProcessor",
          "size": {"height": 384, "width": 384}})";
  const std::string outer =
      R"({"image_token": "<image>", "num_additional_image_tokens": 0, "patch_size": 14,
          "processor_class": "LlavaProcessor", "vision_feature_select_strategy": "full"})";
  const std::string model =
      R"({"vision_config": {"patch_size": 14}, "vision_feature_select_strategy": "full"})";
  MediaFacts facts;
  facts.width = 640, facts.height = 480;
  for (const ProcessorSpec& spec : {Checkpoint(images, outer), Checkpoint(images, "{}", model)}) {
    EXPECT_EQ(*LoadOrFail(spec)->Measure(facts), (ItemLengths{27 * 27, 1, 27 * 27}));
    EXPECT_TRUE(Make(spec, Medium::kImage, "images/scene.png").status.ok());
  }
}

TEST(Clip, AnotherModelsProcessorIsRefusedByName) {
  for (const auto& [folder, of] : {std::pair("clip", "Florence2Processor"), {"siglip", "ColPaliProcessor"}}) {
    EXPECT_THAT(
        RefusalOf(folder, {{"processor_class", of}}),
        HasSubstr(absl::StrCat("processor_class: '", of, "' writes tokens of its own around pictures")));
  }
}

TEST(Clip, EveryPictureHasTheSameLengths) {
  struct Family {
    const char* processor;
    uint32_t tokens;
  };
  for (const Family& family : {Family{"clip", 49},
                               {"siglip", 729},
                               {"blip", 576},
                               {"deit", 196},
                               {"convnext", 49},
                               {"llava", 576},
                               {"llava-pad", 576}}) {
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
}  // namespace evenkeel::preprocess
