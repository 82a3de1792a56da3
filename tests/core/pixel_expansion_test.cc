#include <random>

#include "core/part.h"
#include "gtest/gtest.h"

namespace evenkeel {
namespace {

PixelExpansion Make(uint32_t channels, uint32_t frames, uint32_t on_wire, uint32_t patch) {
  PixelExpansion e{channels, frames, on_wire, patch, {}};
  for (uint32_t i = 0; i < channels * 256; ++i) e.table.push_back((static_cast<float>(i) - 300) / 7);
  return e;
}

// The formula of proto/part.proto, literally.
std::vector<float> Naive(const PixelExpansion& e, const std::vector<std::byte>& in, size_t rows) {
  std::vector<float> out;
  size_t area = e.patch * e.patch;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < e.channels; ++c) {
      for (size_t f = 0; f < e.frames; ++f) {
        for (size_t p = 0; p < area; ++p) {
          size_t at = ((r * e.channels + c) * e.frames_on_wire + f % e.frames_on_wire) * area + p;
          out.push_back(e.table[c * 256 + std::to_integer<uint8_t>(in[at])]);
        }
      }
    }
  }
  return out;
}

TEST(ExpandPixels, EqualsTheNaiveLoop) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    uint32_t frames = 1 + random() % 4;
    PixelExpansion e = Make(1 + random() % 4, frames, 1 + random() % frames, 1 + random() % 15);
    size_t rows = random() % 4;
    std::vector<std::byte> in(rows * e.channels * e.frames_on_wire * e.patch * e.patch);
    for (std::byte& byte : in) byte = static_cast<std::byte>(random());
    std::vector<float> expected = Naive(e, in, rows);
    std::vector<float> out(expected.size(), -1);
    absl::Status status = ExpandPixels(e, in, out);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(out, expected);
  }
}

TEST(ExpandPixels, RefusesSizesThatDisagree) {
  PixelExpansion e = Make(3, 2, 1, 2);  // 12 bytes become 24 floats
  std::vector<std::byte> in(36);
  std::vector<float> out(72);
  EXPECT_TRUE(ExpandPixels(e, in, out).ok());
  EXPECT_EQ(ExpandPixels(e, std::span(in).first(35), out).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExpandPixels(e, std::span(in).first(24), out).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExpandPixels(e, in, std::span(out).first(71)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ExpandPixels(e, in, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ExpandPixels(e, {}, {}).ok());
}

TEST(ExpandPixels, RefusesImpossibleForms) {
  std::vector<std::byte> in(36);
  std::vector<float> out(72);
  for (PixelExpansion e : {Make(0, 2, 1, 2), Make(3, 0, 1, 2), Make(3, 2, 0, 2), Make(3, 1, 2, 2),
                           Make(3, 2, 1, 0), Make(3, 2, 1, 65536), Make(17, 2, 1, 2)}) {
    EXPECT_EQ(ExpandPixels(e, in, out).code(), absl::StatusCode::kInvalidArgument);
  }
  PixelExpansion short_table = Make(3, 2, 1, 2);
  short_table.table.pop_back();
  EXPECT_EQ(ExpandPixels(short_table, in, out).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace evenkeel
