// Llama 3.2 Vision: one token for a picture, and numbers of its grid of tiles.
#include "preprocess/families/mllama.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/preprocess/families/family_golden.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

TEST(Mllama, PixelsAreThoseOfTransformers) { ExpectPixelsOf("mllama"); }
TEST(Mllama, EveryWireFormHasTheSameValues) { ExpectWireFormsAgree("mllama"); }

TEST(Mllama, SizesAreThoseOfTransformersForEveryPicture) {
  for (const nlohmann::json& example : FamilyGolden("canvas", "mllama")) {
    const ImageSize picture{example[0], example[1]};
    const ImageSize canvas = MllamaGrid(picture, 4, 560).Canvas({560, 560});
    EXPECT_EQ(canvas, (ImageSize{example[2], example[3]})) << example;
    EXPECT_EQ(MllamaSize(picture, canvas, 560), (ImageSize{example[4], example[5]})) << example;
  }
}

TEST(Mllama, TheGridHasANumberAndItsTilesAMask) {
  const Item item = Make(VisionSpec("mllama"), Medium::kImage, "pictures/high.png");  // 6x27 pixels
  ASSERT_TRUE(item.status.ok()) << item.status;
  EXPECT_EQ(item.lengths.output_rows, 1u);
  ASSERT_EQ(item.fields.size(), 3u);
  ASSERT_EQ(item.fields[1].size(), sizeof(int64_t));
  std::vector<int64_t> mask(4);
  ASSERT_EQ(item.fields[2].size(), mask.size() * sizeof(int64_t));
  std::memcpy(mask.data(), item.fields[2].data(), item.fields[2].size());
  int64_t id = 0;
  std::memcpy(&id, item.fields[1].data(), sizeof(id));
  EXPECT_EQ(id, 1);  // one tile
  EXPECT_EQ(mask, (std::vector<int64_t>{1, 0, 0, 0}));
}

TEST(Mllama, RefusesWhatItDoesNotImplement) {
  const auto refusal = [](const nlohmann::json& keys) { return RefusalOf("mllama", keys); };
  EXPECT_EQ(refusal({{"max_image_tiles", 6}}), "");
  EXPECT_THAT(refusal({{"do_pad", false}}), HasSubstr("do_pad: is false; only true"));
  EXPECT_THAT(refusal({{"do_resize", false}}), HasSubstr("do_resize: is false; only true"));
  EXPECT_THAT(refusal({{"size", {{"height", 5}, {"width", 5}}}}),
              HasSubstr("size: is 5x5 pixels, smaller than one 14-pixel patch"));
  EXPECT_THAT(refusal({{"do_sharpen", true}}), HasSubstr("do_sharpen: unknown key"));
}

}  // namespace
}  // namespace evenkeel::preprocess
