#include "preprocess/image/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "absl/status/status.h"
#include "tests/preprocess/files.h"

namespace evenkeel::preprocess {
namespace {

struct Entry {
  std::string name;
  uint32_t width = 0;
  uint32_t height = 0;
};

std::vector<Entry> Index() {
  Bytes bytes = Golden("images/index.txt");
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  std::vector<Entry> entries;
  for (Entry entry; lines >> entry.name >> entry.width >> entry.height;) entries.push_back(entry);
  return entries;
}

absl::StatusOr<std::vector<uint8_t>> Decode(const std::string& suffix, const Bytes& bytes,
                                            const Limits& limits = {}) {
  absl::StatusOr<ImageHeader> header = ReadImageHeader(suffix, bytes, limits);
  if (!header.ok()) return header.status();
  std::vector<uint8_t> rgb(header->rgb_bytes());
  absl::Status status = DecodeImage(suffix, bytes, limits, *header, rgb);
  if (!status.ok()) return status;
  return rgb;
}

TEST(Image, EqualsPillowsBytesForEveryFormat) {
  std::vector<Entry> entries = Index();
  ASSERT_GT(entries.size(), 25u);
  for (const Entry& entry : entries) {
    SCOPED_TRACE(entry.name);
    Bytes bytes = Golden("images/" + entry.name);
    absl::StatusOr<ImageHeader> header = ReadImageHeader(SuffixOf(entry.name), bytes, Limits{});
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->width, entry.width);
    EXPECT_EQ(header->height, entry.height);
    absl::StatusOr<std::vector<uint8_t>> rgb = Decode(SuffixOf(entry.name), bytes);
    ASSERT_TRUE(rgb.ok()) << rgb.status();
    Bytes expected = Golden("images/" + entry.name + ".rgb");
    ASSERT_EQ(rgb->size(), expected.size());
    EXPECT_EQ(std::memcmp(rgb->data(), expected.data(), expected.size()), 0);
  }
}

TEST(Image, RefusesWhatPillowsReleasesDisagreeAbout) {
  EXPECT_TRUE(absl::IsUnimplemented(Decode("png", Golden("images/refused-grey-16-bits.png")).status()));
}

TEST(Image, TruncatedAnimatedWebpHasTheSameErrorEveryTime) {
  const Bytes whole = Golden("images/animated.webp");
  for (size_t length = whole.size() / 2; length < whole.size(); length += 97) {
    EXPECT_FALSE(Decode("webp", Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length))).ok());
  }
  for (uint64_t n = 0; n < MutationCount(300); ++n) {
    const Bytes damaged = Mutated(whole, n);
    EXPECT_EQ(Decode("webp", damaged).status(), Decode("webp", damaged).status());
  }
}

TEST(Image, JpegsOfMoreThanEightBitsAndWithoutLossAreUnimplemented) {
  const Bytes jpeg = Golden("images/baseline-444.jpg");
  constexpr std::byte kMark{0xff}, kBaseline{0xc0}, kLossless{0xc3};
  size_t frame = 2;
  while (jpeg[frame] != kMark || jpeg[frame + 1] != kBaseline) ++frame;
  Bytes wide = jpeg, lossless = jpeg;
  wide[frame + 4] = std::byte{12};
  lossless[frame + 1] = kLossless;
  EXPECT_TRUE(absl::IsUnimplemented(ReadImageHeader("jpg", wide, Limits{}).status()));
  EXPECT_TRUE(absl::IsUnimplemented(Decode("jpg", lossless).status()));
}

TEST(Image, TheMagicMustAgreeWithTheDeclaredType) {
  Bytes png = Golden("images/rgb.png");
  EXPECT_TRUE(absl::IsInvalidArgument(ReadImageHeader("jpg", png, Limits{}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadImageHeader("webp", png, Limits{}).status()));
  EXPECT_TRUE(absl::IsUnimplemented(ReadImageHeader("bmp", png, Limits{}).status()));
  EXPECT_TRUE(ReadImageHeader("seg.png", png, Limits{}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(ReadImageHeader("png", {}, Limits{}).status()));
}

TEST(Image, TruncationIsDataLossThatSaysHowFarItGot) {
  for (std::string name :
       {"baseline-420.jpg", "progressive.jpg", "rgb.png", "interlaced.png", "lossy.webp", "lossless.webp"}) {
    SCOPED_TRACE(name);
    Bytes bytes = Golden("images/" + name);
    absl::StatusOr<ImageHeader> header = ReadImageHeader(SuffixOf(name), bytes, Limits{});
    ASSERT_TRUE(header.ok());
    std::vector<uint8_t> rgb(header->rgb_bytes());
    Bytes cut(bytes.begin(), bytes.begin() + bytes.size() * 9 / 10);
    absl::Status status = DecodeImage(SuffixOf(name), cut, Limits{}, *header, rgb);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(std::to_string(cut.size())));
  }
}

TEST(Image, EveryTruncationIsAnErrorOfAType) {
  for (std::string name : {"baseline-444.jpg", "palette.png", "lossy-alpha.webp"}) {
    Bytes bytes = Golden("images/" + name);
    for (size_t size = 0; size + 16 < bytes.size(); size += 7) {
      absl::Status status = Decode(SuffixOf(name), Bytes(bytes.begin(), bytes.begin() + size)).status();
      EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsDataLoss(status))
          << name << " " << size << " " << status;
    }
  }
}

TEST(Image, OtherDimensionsThanTheIndexSaysAreDataLoss) {
  for (std::string name : {"baseline-444.jpg", "rgb.png", "lossy.webp"}) {
    ImageHeader header{8, 8, 0};
    std::vector<uint8_t> rgb(header.rgb_bytes());
    EXPECT_TRUE(
        absl::IsDataLoss(DecodeImage(SuffixOf(name), Golden("images/" + name), Limits{}, header, rgb)))
        << name;
  }
}

TEST(Image, LimitsAreEnforcedOnTheHeader) {
  Bytes bytes = Golden("images/progressive.jpg");
  Limits limits;
  limits.max_image_pixels = 100;
  EXPECT_TRUE(absl::IsResourceExhausted(ReadImageHeader("jpg", bytes, limits).status()));
  limits = Limits{};
  limits.max_image_side = 40;
  EXPECT_TRUE(absl::IsResourceExhausted(ReadImageHeader("jpg", bytes, limits).status()));
  limits = Limits{};
  limits.max_image_bytes = 100;
  EXPECT_TRUE(absl::IsResourceExhausted(ReadImageHeader("jpg", bytes, limits).status()));
  limits = Limits{};
  limits.max_jpeg_scans = 2;
  EXPECT_TRUE(absl::IsResourceExhausted(Decode("jpg", bytes, limits).status()));
}

TEST(Image, SmallImagesAreNeverRefusedByTheirRatio) {
  Limits limits;
  limits.max_decode_ratio = 0;
  EXPECT_TRUE(ReadImageHeader("webp", Golden("images/lossless.webp"), limits).ok());
}

TEST(Image, MutationsGiveErrorsOfATypeAndTheSameVerdictTwice) {
  for (const Entry& entry : Index()) {
    Bytes original = Golden("images/" + entry.name);
    for (uint64_t n = 0; n < MutationCount(60); ++n) {
      Bytes bytes = Mutated(original, n);
      Limits limits;
      limits.max_image_pixels = 1 << 20;
      auto first = Decode(SuffixOf(entry.name), bytes, limits);
      auto second = Decode(SuffixOf(entry.name), bytes, limits);
      ASSERT_EQ(first.status(), second.status()) << entry.name << " mutation " << n;
      if (first.ok()) {
        ASSERT_EQ(*first, *second) << entry.name << " mutation " << n;
        continue;
      }
      ASSERT_THAT(first.status().code(),
                  testing::AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kDataLoss,
                                 absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnimplemented))
          << entry.name << " mutation " << n << " " << first.status();
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
