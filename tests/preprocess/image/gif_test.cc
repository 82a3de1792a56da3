// GIF: the first frame on its canvas, and every refusal. tests/preprocess/test_parity_formats.py compares with Pillow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "preprocess/image/image.h"
#include "tests/mutations.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

// A frame of four colours; the screen has 9x9 pixels.
struct Frame {
  uint32_t left = 0, top = 0, width = 3, height = 4;
  bool interlaced = false;
  int transparent = -1;
  std::vector<uint8_t> indices = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};  // in the order of the file
};

constexpr uint8_t kPalette[] = {10, 11, 12, 20, 21, 22, 30, 31, 32, 40, 41, 42};

Bytes GifOf(const Frame& frame) {
  std::string out = "GIF89a";
  const auto put16 = [&out](uint32_t value) {
    out += static_cast<char>(value & 255);
    out += static_cast<char>(value >> 8);
  };
  put16(9), put16(9);
  out += std::string("\x81\0\0", 3);
  out.append(reinterpret_cast<const char*>(kPalette), sizeof(kPalette));
  if (frame.transparent >= 0) {
    out += std::string("\x21\xf9\x04\x01\0\0", 6);
    out += static_cast<char>(frame.transparent);
    out += '\0';
  }
  out += ',';
  put16(frame.left), put16(frame.top), put16(frame.width), put16(frame.height);
  out += frame.interlaced ? '\x40' : '\0';
  // Codes of three bits: 4 clears the table before they need four, 5 is the end.
  std::vector<uint8_t> codes;
  for (size_t i = 0; i < frame.indices.size(); ++i) {
    if (i % 2 == 0) codes.push_back(4);
    codes.push_back(frame.indices[i]);
  }
  codes.push_back(5);
  std::string packed((3 * codes.size() + 7) / 8, '\0');
  for (size_t bit = 0; bit < 3 * codes.size(); ++bit) {
    if ((codes[bit / 3] >> bit % 3 & 1) != 0)
      packed[bit / 8] = static_cast<char>(packed[bit / 8] | 1 << bit % 8);
  }
  out += '\x02';
  out += static_cast<char>(packed.size());
  out += packed + std::string("\0;", 2);
  Bytes bytes(out.size());
  std::memcpy(bytes.data(), out.data(), out.size());
  return bytes;
}

struct Decoded {
  absl::Status status;
  ImageHeader header;
  std::vector<uint8_t> rgb;
  // The first component of a pixel.
  int at(uint32_t x, uint32_t y) const { return rgb[3 * (size_t{y} * header.width + x)]; }
};

Decoded Decode(const Bytes& bytes, const ColourOptions& options = {}) {
  Decoded out;
  const absl::StatusOr<ImageHeader> header = ReadImageHeader("gif", bytes, Limits{}, options);
  out.status = header.status();
  if (!header.ok()) return out;
  out.header = *header;
  out.rgb.resize(header->rgb_bytes());
  out.status = DecodeImage("gif", bytes, Limits{}, *header, out.rgb, options);
  return out;
}

TEST(Gif, AFrameIsAtItsPlaceOnTheScreen) {
  const Decoded out = Decode(GifOf({.left = 4, .top = 5}));
  ASSERT_TRUE(out.status.ok()) << out.status;
  EXPECT_EQ(out.header.width, 9u);
  EXPECT_EQ(out.header.height, 9u);
  EXPECT_EQ(out.at(0, 0), 10) << "around it is the first colour";
  EXPECT_EQ(out.at(5, 5), 20);
  EXPECT_EQ(out.at(6, 5), 30);
  EXPECT_EQ(out.at(4, 6), 40);
}

TEST(Gif, AFrameBeyondTheScreenEnlargesIt) {
  const Decoded out = Decode(GifOf({.left = 8, .top = 8}));
  ASSERT_TRUE(out.status.ok()) << out.status;
  EXPECT_EQ(out.header.width, 11u);
  EXPECT_EQ(out.header.height, 12u);
  EXPECT_EQ(out.at(9, 8), 20);
}

TEST(Gif, RowsOfAnInterlacedFrameComeInFourPasses) {
  const Decoded out = Decode(GifOf({.interlaced = true}));
  ASSERT_TRUE(out.status.ok()) << out.status;
  // Of four rows: 0, then 2, then 1 and 3.
  EXPECT_EQ(out.at(0, 0), 10);
  EXPECT_EQ(out.at(0, 2), 40);
  EXPECT_EQ(out.at(0, 1), 30);
  EXPECT_EQ(out.at(0, 3), 20);
}

TEST(Gif, ATransparentColourIsBlendedAndFillsTheScreen) {
  const Bytes bytes = GifOf({.transparent = 2});
  const Decoded white = Decode(bytes, {.background = Colour{255, 254, 253}});
  EXPECT_EQ(white.at(2, 0), 255);
  EXPECT_EQ(white.at(8, 8), 255) << "around the frame";
  EXPECT_EQ(white.at(1, 0), 20);
  EXPECT_EQ(Decode(bytes).at(2, 0), 30) << "dropped";
}

TEST(Gif, RefusesWhatIsDamagedAndWhatTheJobRefuses) {
  const Bytes whole = GifOf({});
  for (size_t length = 0; length + 4 < whole.size(); ++length) {
    EXPECT_FALSE(Decode(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length))).status.ok())
        << length;
  }
  EXPECT_THAT(std::string(Decode(whole, {.palette = Conversion::kRefuse}).status.message()),
              HasSubstr("processor.palette is refuse"));
  for (uint64_t n = 0; n < 300; ++n) {
    const Bytes damaged = Mutated(whole, n);
    EXPECT_EQ(Decode(damaged).status, Decode(damaged).status);
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
