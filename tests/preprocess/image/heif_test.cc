// AVIF and HEIF: the values of Pillow with libavif and with pillow-heif, over the files of
// make_heif_goldens.py, and every refusal. tests/preprocess/test_parity_heif.py has many more files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "preprocess/image/heif_boxes.h"
#include "preprocess/image/image.h"
#include "tests/preprocess/files.h"

namespace evenkeel::preprocess {
namespace {

using ::testing::HasSubstr;

struct Entry {
  std::string name;
  uint32_t width = 0;
  uint32_t height = 0;
  uint32_t orientation = 1;
};

std::vector<Entry> Index() {
  const Bytes bytes = Golden("heif/index.txt");
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  std::vector<Entry> entries;
  for (Entry entry; lines >> entry.name >> entry.width >> entry.height >> entry.orientation;)
    entries.push_back(entry);
  return entries;
}

absl::StatusOr<std::vector<uint8_t>> Decode(const Bytes& bytes, const ColourOptions& options = {},
                                            const Limits& limits = {}) {
  absl::StatusOr<ImageHeader> header = ReadImageHeader("heif", bytes, limits, options);
  if (!header.ok()) return header.status();
  std::vector<uint8_t> rgb(header->rgb_bytes());
  absl::Status status = DecodeImage("heif", bytes, limits, *header, rgb, options);
  if (!status.ok()) return status;
  return rgb;
}

// How many bytes differ, and the first of them.
std::string Difference(const std::vector<uint8_t>& ours, const Bytes& theirs) {
  if (ours.size() != theirs.size()) return "other sizes";
  size_t count = 0, first = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] == std::to_integer<uint8_t>(theirs[i])) continue;
    if (count++ == 0) first = i;
  }
  if (count == 0) return "";
  return std::to_string(count) + " of " + std::to_string(ours.size()) + " bytes, the first at " +
         std::to_string(first) + ": " + std::to_string(ours[first]) + " instead of " +
         std::to_string(std::to_integer<int>(theirs[first]));
}

// The golden file with the first `before` of its bytes replaced by `after`.
Bytes Replaced(const std::string& name, std::string_view before, std::string_view after) {
  Bytes bytes = Golden(name);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t at = text.find(before);
  EXPECT_NE(at, std::string_view::npos) << name;
  EXPECT_EQ(before.size(), after.size());
  std::memcpy(bytes.data() + at, after.data(), after.size());
  return bytes;
}

using namespace std::string_view_literals;

TEST(Heif, HasTheValuesOfPillow) {
  const std::vector<Entry> entries = Index();
  ASSERT_GT(entries.size(), 45u);
  for (const Entry& entry : entries) {
    SCOPED_TRACE(entry.name);
    const Bytes bytes = Golden("heif/" + entry.name);
    const absl::StatusOr<ImageHeader> header = ReadImageHeader(SuffixOf(entry.name), bytes, Limits{});
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->width, entry.width);
    EXPECT_EQ(header->height, entry.height);
    EXPECT_EQ(header->orientation, entry.orientation);
    const absl::StatusOr<std::vector<uint8_t>> rgb = Decode(bytes);
    ASSERT_TRUE(rgb.ok()) << rgb.status();
    EXPECT_EQ(Difference(*rgb, Golden("heif/" + entry.name + ".rgb")), "");
  }
}

TEST(Heif, BlendsItsAlphaAsPillowPastes) {
  int found = 0;
  for (const Entry& entry : Index()) {
    if (!std::filesystem::exists(GoldenPath("heif/" + entry.name + ".white"))) continue;
    SCOPED_TRACE(entry.name);
    ++found;
    const auto rgb = Decode(Golden("heif/" + entry.name), {.background = Colour{255, 255, 255}});
    ASSERT_TRUE(rgb.ok()) << rgb.status();
    EXPECT_EQ(Difference(*rgb, Golden("heif/" + entry.name + ".white")), "");
  }
  EXPECT_GT(found, 10);
}

TEST(Heif, SizesAreRefusedBeforeMemoryIsTaken) {
  const auto message = [](const Bytes& bytes, const Limits& limits = {}) {
    return std::string(ReadImageHeader("avif", bytes, limits).status().message());
  };
  const auto side = "\0\0\0\x29\0\0\0\x1d"sv;
  EXPECT_THAT(message(Replaced("heif/420.avif", side, "\x7f\xff\xff\xff\0\0\0\x1d"sv)),
              HasSubstr("limits.max_image_side"));
  EXPECT_THAT(message(Replaced("heif/420.avif", side, "\0\0\x40\0\0\0\x40\0"sv)),
              HasSubstr("limits.max_image_pixels"));
  EXPECT_THAT(message(Replaced("heif/420.avif", side, "\0\0\0\0\0\0\0\x1d"sv)), HasSubstr("0 pixels"));
  Limits limits;
  limits.max_image_side = 110;
  EXPECT_THAT(message(Golden("heif/grid.heic"), limits), HasSubstr("limits.max_image_side"))
      << "tiles reach beyond";
  limits.max_image_side = 128;
  EXPECT_EQ(message(Golden("heif/grid.heic"), limits), "");
}

TEST(Heif, AStreamLargerThanItsBoxesSayIsRefused) {
  const Bytes small = Replaced("heif/444.avif", "\0\0\0\x29\0\0\0\x1d"sv, "\0\0\0\x09\0\0\0\x09"sv);
  EXPECT_TRUE(absl::IsDataLoss(Decode(small).status())) << Decode(small).status();
  const Bytes large = Replaced("heif/444.avif", "\0\0\0\x29\0\0\0\x1d"sv, "\0\0\0\x29\0\0\0\x1e"sv);
  EXPECT_TRUE(absl::IsDataLoss(Decode(large).status())) << Decode(large).status();
}

TEST(Heif, WhatIsNotSupportedIsNamed) {
  const auto refused = [](const Bytes& bytes) {
    const absl::Status status = Decode(bytes).status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused(Replaced("heif/420.avif", "av01", "jpeg")), HasSubstr("type 'jpeg'"));
  EXPECT_THAT(refused(Replaced("heif/grid.heic", "grid", "iovl")), HasSubstr("type 'iovl'"));
  EXPECT_THAT(refused(Replaced("heif/turned-6.avif", "irot", "lsel")),
              HasSubstr("essential property 'lsel'"));
  EXPECT_THAT(refused(Replaced("heif/identity.avif", "nclx\0\x01\0\x0d\0\0"sv, "nclx\0\x01\0\x0d\0\x0e"sv)),
              HasSubstr("matrix 14"));
}

TEST(Heif, DamagedBoxesAreNamed) {
  const auto refused = [](const Bytes& bytes) { return std::string(Decode(bytes).status().message()); };
  EXPECT_THAT(refused(Replaced("heif/420.avif", "meta", "free")), HasSubstr("'meta'"));
  EXPECT_THAT(refused(Replaced("heif/420.avif", "pitm\0\0\0\0\0\x01"sv, "pitm\0\0\0\0\0\x07"sv)),
              HasSubstr("item 7"));
  EXPECT_THAT(refused(Replaced("heif/420.avif", "ispe", "free")), HasSubstr("'ispe'"));
  EXPECT_THAT(refused(Replaced("heif/grid.heic", "dimg", "free")), HasSubstr("0 tiles; expected 2"));
  EXPECT_THAT(refused(Replaced("heif/grid.heic", "\0\0\0\x01\0\x64\0\x3e"sv, "\0\0\0\x02\0\x64\0\x3e"sv)),
              HasSubstr("expected 3"));
}

TEST(Heif, TheContentsTellAvifFromHeif) {
  EXPECT_TRUE(ReadImageHeader("heic", Golden("heif/420.avif"), Limits{}).ok());
  EXPECT_TRUE(ReadImageHeader("x.avif", Golden("heif/420.heic"), Limits{}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(ReadImageHeader("avif", Golden("images/rgb.png"), Limits{}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadImageHeader("png", Golden("heif/420.avif"), Limits{}).status()));
}

TEST(Heif, EveryTruncationIsAnError) {
  for (const char* name : {"heif/420.avif", "heif/420-alpha.avif", "heif/420.heic", "heif/grid.heic"}) {
    const Bytes whole = Golden(name);
    for (size_t length = 0; length < whole.size(); length += 13) {
      const absl::Status status =
          Decode(Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length))).status();
      EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsDataLoss(status))
          << name << " " << length << " " << status;
    }
  }
}

TEST(Heif, DamagedFilesHaveTheSameErrorEveryTime) {
  for (const Entry& entry : Index()) {
    const Bytes whole = Golden("heif/" + entry.name);
    for (uint64_t n = 0; n < MutationCount(60); ++n) {
      const Bytes damaged = Mutated(whole, n);
      EXPECT_EQ(Decode(damaged), Decode(damaged)) << entry.name << " " << n;
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
