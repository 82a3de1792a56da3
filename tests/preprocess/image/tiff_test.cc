// TIFF: the first page, and every refusal. Values are compared with Pillow's by image_test.cc, over the golden files,
// and by tests/preprocess/test_parity_tiff.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "preprocess/image/image.h"
#include "tests/preprocess/files.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

// The tags of a grey picture of 2x2 pixels in one strip, of 4 bytes at byte 8.
using Tags = std::map<uint16_t, uint32_t>;
Tags GreyTags() {
  return {{256, 2}, {257, 2}, {258, 8}, {259, 1}, {262, 1}, {273, 8}, {277, 1}, {278, 2}, {279, 4}};
}

// A little-endian file with a directory after its pixels. `next`: where the next directory should be.
Bytes TiffOf(const Tags& tags, uint32_t next = 0) {
  std::string out("II*\0\x0c\0\0\0\x0a\x14\x1e\x28", 12);
  const auto put = [&out](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i & 255);
  };
  put(static_cast<uint32_t>(tags.size()), 2);
  for (const auto& [tag, value] : tags) put(tag, 2), put(4, 2), put(1, 4), put(value, 4);
  put(next, 4);
  Bytes bytes(out.size());
  std::memcpy(bytes.data(), out.data(), out.size());
  return bytes;
}

absl::StatusOr<std::vector<uint8_t>> Decode(const Bytes& bytes, const ColourOptions& options = {},
                                            const Limits& limits = {}) {
  absl::StatusOr<ImageHeader> header = ReadImageHeader("tif", bytes, limits, options);
  if (!header.ok()) return header.status();
  std::vector<uint8_t> rgb(header->rgb_bytes());
  absl::Status status = DecodeImage("tif", bytes, limits, *header, rgb, options);
  if (!status.ok()) return status;
  return rgb;
}

TEST(Tiff, GreyIsTheSameInEveryComponent) {
  EXPECT_EQ(*Decode(TiffOf(GreyTags())),
            std::vector<uint8_t>({10, 10, 10, 20, 20, 20, 30, 30, 30, 40, 40, 40}));
}

TEST(Tiff, SidesAreThoseOfTheUprightPicture) {
  const Bytes bytes = Golden("images/turned-6.tif");
  const ImageHeader header = *ReadImageHeader("tiff", bytes, Limits{});
  EXPECT_EQ(header.width, 29u);
  EXPECT_EQ(header.height, 41u);
  EXPECT_EQ(header.orientation, 1u) << "it is turned as it is decoded, whatever the job does with EXIF";
}

TEST(Tiff, FurtherDirectoriesAreNotRead) {
  for (const uint32_t next : {12u, 8u, 0xfffffffeu})
    EXPECT_TRUE(Decode(TiffOf(GreyTags(), next)).ok()) << next;
}

TEST(Tiff, SizesThatTheBytesCannotHaveAreRefusedBeforeMemoryIsTaken) {
  Tags wide = GreyTags(), large = GreyTags(), tile = GreyTags(), rows = GreyTags(), beyond = GreyTags();
  wide[256] = 0x7fffffff;
  large[256] = large[257] = large[278] = 16000;
  rows[278] = 0xffffffff;
  beyond[273] = 0xfffffff0;
  tile.erase(273), tile.erase(278), tile.erase(279);
  tile.insert({{322, 1u << 30}, {323, 1u << 30}, {324, 8}, {325, 4}});
  Tags padded = tile;
  padded[322] = padded[323] = 16384;
  EXPECT_THAT(std::string(Decode(TiffOf(wide)).status().message()), HasSubstr("limits.max_image_side"));
  EXPECT_THAT(std::string(Decode(TiffOf(large)).status().message()), HasSubstr("limits.max_image_pixels"));
  EXPECT_THAT(std::string(Decode(TiffOf(tile)).status().message()), HasSubstr("limits.max_image_side"));
  EXPECT_THAT(std::string(Decode(TiffOf(padded)).status().message()), HasSubstr("limits.max_decode_ratio"));
  EXPECT_TRUE(Decode(TiffOf(rows)).ok()) << "all rows are in one strip";
  EXPECT_TRUE(absl::IsDataLoss(Decode(TiffOf(beyond)).status())) << Decode(TiffOf(beyond)).status();
}

TEST(Tiff, LayoutsThatAreNotSupportedAreNamed) {
  const std::pair<uint16_t, uint32_t> changes[] = {{258, 32}, {258, 3}, {259, 34661}, {259, 6},    {262, 8},
                                                   {277, 2},  {339, 3}, {262, 2},     {262, 32844}};
  for (const auto& [tag, value] : changes) {
    Tags tags = GreyTags();
    tags[tag] = value;
    const absl::Status status = Decode(TiffOf(tags)).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << tag << " " << value << ": " << status;
  }
  EXPECT_TRUE(absl::IsUnimplemented(Decode(Golden("images/refused-grey-16-bits.tif")).status()));
}

TEST(Tiff, RefusesWhatTheJobRefuses) {
  const auto message = [](const char* name, const ColourOptions& options) {
    return std::string(Decode(Golden(name), options).status().message());
  };
  EXPECT_THAT(message("images/palette.tif", {.palette = Conversion::kRefuse}),
              HasSubstr("processor.palette is refuse"));
  EXPECT_THAT(message("images/cmyk.tif", {.cmyk = Conversion::kRefuse}),
              HasSubstr("processor.cmyk is refuse"));
  EXPECT_THAT(message("images/rgb-16.tif", {.sixteen_bit = SixteenBit::kRefuse}),
              HasSubstr("processor.sixteen_bit is refuse"));
}

TEST(Tiff, DamagedFilesHaveTheSameErrorEveryTime) {
  for (const char* name : {"images/rgb-lzw.tif", "images/two-colours.tif", "images/jpeg.tif",
                           "images/rgba-tiles.tif", "images/planes.tif", "images/palette.tif"}) {
    const Bytes whole = Golden(name);
    for (size_t length = 0; length < whole.size(); length += 61) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
      EXPECT_EQ(Decode(cut).status(), Decode(cut).status());
    }
    for (uint64_t n = 0; n < MutationCount(300); ++n) {
      const Bytes damaged = Mutated(whole, n);
      EXPECT_EQ(Decode(damaged), Decode(damaged)) << name << " " << n;
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
