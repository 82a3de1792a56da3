#include "preprocess/image/turned_picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "tests/preprocess/files.h"
#include "tests/preprocess/video/frames.h"

namespace evenkeel::preprocess {
namespace {

using Pixel = std::array<uint8_t, 3>;

// A picture of noise, and where each orientation takes its pixels, one at a time.
struct Picture {
  uint32_t width, height;
  std::vector<uint8_t> rgb;

  Picture(uint32_t w, uint32_t h, Dice& dice) : width(w), height(h), rgb(size_t{3} * w * h) {
    for (uint8_t& byte : rgb) byte = static_cast<uint8_t>(dice.Roll(256));
  }

  Pixel at(uint32_t x, uint32_t y) const {
    const uint8_t* from = &rgb[(size_t{y} * width + x) * 3];
    return {from[0], from[1], from[2]};
  }
  // Source: the table of EXIF 2.32, 4.6.4, tag Orientation.
  Pixel upright(uint32_t orientation, uint32_t x, uint32_t y) const {
    const uint32_t right = width - 1, bottom = height - 1;
    switch (orientation) {
      case 2:
        return at(right - x, y);
      case 3:
        return at(right - x, bottom - y);
      case 4:
        return at(x, bottom - y);
      case 5:
        return at(y, x);
      case 6:
        return at(y, bottom - x);
      case 7:
        return at(right - y, bottom - x);
      case 8:
        return at(right - y, x);
      default:
        return at(x, y);
    }
  }
};

// In bands of some rows each, as planes or interleaved.
void Feed(const Picture& picture, bool planes, Dice& dice, TurnedPicture& turned) {
  const size_t row = size_t{3} * picture.width, plane = picture.rgb.size() / 3;
  std::vector<uint8_t> split(picture.rgb.size());
  for (size_t i = 0; i < picture.rgb.size(); ++i) split[plane * (i % 3) + i / 3] = picture.rgb[i];
  const PixelBand all =
      planes ? PixelBand{{&split[0], &split[plane], &split[2 * plane]}, picture.width, picture.height, 1}
             : InterleavedBand(picture.rgb.data(), row, picture.height);
  for (uint32_t y = 0; y < picture.height;) {
    const uint32_t count = std::min(picture.height - y, 1 + static_cast<uint32_t>(dice.Roll(40)));
    turned.TakeBand(all.From(y, count));
    y += count;
  }
}

TEST(TurnedPicture, PixelsGoWhereExifSaysInPicturesOfEverySize) {
  Dice dice(7);
  TurnedPicture turned;
  for (int round = 0; round < 300; ++round) {
    const uint32_t most = round % 3 == 0 ? 200 : 40;
    const auto width = 1 + static_cast<uint32_t>(dice.Roll(most));
    const Picture picture(width, 1 + static_cast<uint32_t>(dice.Roll(most)), dice);
    const uint32_t orientation = 1 + round % 8;
    turned.Start({picture.width, picture.height});
    Feed(picture, dice.Roll(2) == 0, dice, turned);
    std::vector<uint8_t> out;
    const auto [across, down] = Turns(orientation) ? std::pair(picture.height, picture.width)
                                                   : std::pair(picture.width, picture.height);
    AppendedRgb sink(across, out);
    turned.Deliver(orientation, sink);
    ASSERT_EQ(out.size(), picture.rgb.size());
    for (uint32_t y = 0; y < down; ++y) {
      for (uint32_t x = 0; x < across; ++x) {
        const uint8_t* got = &out[(size_t{y} * across + x) * 3];
        ASSERT_EQ((Pixel{got[0], got[1], got[2]}), picture.upright(orientation, x, y))
            << picture.width << "x" << picture.height << " orientation " << orientation << " at " << x << ","
            << y;
      }
    }
  }
}

TEST(TurnedPicture, QuartersClockwiseHaveTheNumbersOfExif) {
  EXPECT_EQ(OrientationOf(0), 1u);
  EXPECT_EQ(OrientationOf(90), 6u);
  EXPECT_EQ(OrientationOf(180), 3u);
  EXPECT_EQ(OrientationOf(270), 8u);
}

}  // namespace
}  // namespace evenkeel::preprocess
