#include "preprocess/video/video.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "tests/preprocess/cpu_flags.h"
#include "tests/preprocess/files.h"
#include "tests/preprocess/video/frames.h"

namespace {

unsigned dav1d_flags = ~0u;  // that dav1d may choose from, as it was told last

}  // namespace

// Stands before dav1d's own, which tells nobody what it was told.
extern "C" __attribute__((visibility("default"))) void dav1d_set_cpu_flags_mask(unsigned flags) {
  dav1d_flags = flags;
  const auto set = reinterpret_cast<void (*)(unsigned)>(dlsym(RTLD_NEXT, "dav1d_set_cpu_flags_mask"));
  if (set != nullptr) set(flags);
}

namespace evenkeel::preprocess {
namespace {

const std::vector<std::string>& Files() {
  static const std::vector<std::string> files = {"h264.mp4",  "h264-10-bits.mkv", "hevc.mp4",
                                                 "mpeg4.avi", "mjpeg.avi",        "vp8.webm",
                                                 "vp9.webm",  "cinepak.avi",      "av1.mp4"};
  return files;
}

struct Decoded {
  std::vector<uint8_t> rgb;
  uint64_t repeated = 0;
};

absl::StatusOr<Decoded> Decode(const std::string& name, const Bytes& bytes,
                               const std::vector<uint32_t>& chosen,
                               FrameLoader loader = FrameLoader::kAccurate) {
  Limits limits;
  limits.max_video_pixels = 1 << 18;
  limits.max_video_frames = 200;
  absl::StatusOr<MediaFacts> facts = ProbeVideo(SuffixOf(name), bytes, limits, loader);
  if (!facts.ok()) return facts.status();
  Decoded decoded;
  auto sink = [&](size_t, FrameRows rows) { return AppendRgb(rows, facts->width, decoded.rgb); };
  absl::Status status =
      DecodeVideo(SuffixOf(name), bytes, limits, *facts, chosen, loader, sink, &decoded.repeated);
  if (!status.ok()) return status;
  return decoded;
}

#ifdef __x86_64__
// Of damaged media, other instructions give other pixels.
TEST(Video, IsDecodedByTheSameInstructionsOnEveryProcessor) {
  ASSERT_TRUE(ProbeVideo("mp4", Golden("video/av1.mp4"), Limits{}, FrameLoader::kAccurate).ok());
  EXPECT_EQ(av_get_cpu_flags(), kX8664V2);
  EXPECT_EQ(dav1d_flags, ForcedDav1dFlags::kUsual);
}
#endif

TEST(Video, FactsCountTheFramesThatADecodeDelivers) {
  for (const std::string& name : Files()) {
    SCOPED_TRACE(name);
    absl::StatusOr<MediaFacts> facts =
        ProbeVideo(SuffixOf(name), Golden("video/" + name), Limits{}, FrameLoader::kAccurate);
    ASSERT_TRUE(facts.ok()) << facts.status();
    EXPECT_EQ(facts->width, name == "cinepak.avi" ? 52u : 50u);
    EXPECT_EQ(facts->height, name == "cinepak.avi" ? 40u : 38u);
    EXPECT_EQ(facts->num_frames, 24u);
    EXPECT_NEAR(static_cast<double>(facts->fps_num) / facts->fps_den, 12, 0.6);
    EXPECT_EQ(facts->rotation, 0u);
  }
}

TEST(Video, ChosenFramesEqualThoseOfTheFfmpegCommand) {
  for (const std::string& name : Files()) {
    SCOPED_TRACE(name);
    absl::StatusOr<Decoded> decoded = Decode(name, Golden("video/" + name), {0, 5, 11, 23});
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->repeated, 0u);
    Bytes expected = Golden("video/" + name + ".rgb");
    ASSERT_EQ(decoded->rgb.size(), expected.size());
    EXPECT_EQ(std::memcmp(decoded->rgb.data(), expected.data(), expected.size()), 0);
  }
}

TEST(Video, ChosenFramesEqualThoseOfTorchcodec) {
  for (const std::string& name : Files()) {
    SCOPED_TRACE(name);
    absl::StatusOr<Decoded> decoded =
        Decode(name, Golden("video/" + name), {0, 5, 11, 23}, FrameLoader::kTorchcodec);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->repeated, 0u);
    Bytes expected = Golden("video/" + name + ".torchcodec.rgb");
    ASSERT_EQ(decoded->rgb.size(), expected.size());
    EXPECT_EQ(std::memcmp(decoded->rgb.data(), expected.data(), expected.size()), 0);
  }
}

// Frames of loaders that libswscale's other code would convert otherwise come from code of ours.
TEST(Video, EverySetOfCpuFeaturesGivesTheSameBytesOfWholeFiles) {
  for (const std::string& name : Files()) {
    Bytes bytes = Golden("video/" + name);
    for (FrameLoader loader : {FrameLoader::kTorchcodec, FrameLoader::kAccurate}) {
      absl::StatusOr<Decoded> usual = Decode(name, bytes, {0, 3, 9, 10, 23}, loader);
      ASSERT_TRUE(usual.ok()) << usual.status();
      for (int flags : {0, -1}) {
        const ForcedCpuFlags forced(flags);
        absl::StatusOr<Decoded> other = Decode(name, bytes, {0, 3, 9, 10, 23}, loader);
        ASSERT_TRUE(other.ok()) << other.status();
        EXPECT_TRUE(other->rgb == usual->rgb) << name << " with flags " << flags;
      }
    }
  }
}

// FFmpeg's flags do not reach dav1d, which has its own.
TEST(Video, EverySetOfCpuFeaturesOfDav1dGivesTheSameBytesOfAWholeFile) {
  absl::StatusOr<Decoded> usual = Decode("av1.mp4", Golden("video/av1.mp4"), {0, 3, 9, 23});
  ASSERT_TRUE(usual.ok()) << usual.status();
  for (unsigned features : {0u, 1u, 3u, 15u, ~0u}) {  // none, SSE2, SSSE3, AVX2, all
    const ForcedDav1dFlags forced(features);
    absl::StatusOr<Decoded> other = Decode("av1.mp4", Golden("video/av1.mp4"), {0, 3, 9, 23});
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(other->rgb, usual->rgb) << "with features " << features;
  }
}

TEST(Video, TheLastFrameStandsForThoseThatNeverCome) {
  Bytes bytes = Golden("video/h264.mp4");
  absl::StatusOr<Decoded> last = Decode("h264.mp4", bytes, {23});
  absl::StatusOr<Decoded> beyond = Decode("h264.mp4", bytes, {22, 30, 31});
  ASSERT_TRUE(last.ok());
  ASSERT_TRUE(beyond.ok());
  EXPECT_EQ(beyond->repeated, 2u);
  size_t frame = last->rgb.size();
  ASSERT_EQ(beyond->rgb.size(), 3 * frame);
  EXPECT_EQ(std::memcmp(&beyond->rgb[frame], last->rgb.data(), frame), 0);
  EXPECT_EQ(std::memcmp(&beyond->rgb[2 * frame], last->rgb.data(), frame), 0);
}

TEST(Video, AFrameChosenTwiceIsHandedOutTwice) {
  absl::StatusOr<Decoded> decoded = Decode("vp9.webm", Golden("video/vp9.webm"), {4, 4});
  ASSERT_TRUE(decoded.ok());
  size_t frame = decoded->rgb.size() / 2;
  EXPECT_EQ(std::memcmp(&decoded->rgb[0], &decoded->rgb[frame], frame), 0);
}

TEST(Video, ARateIsWhatTheTimesOfTheFramesSay) {
  // Its header says 12 a second; frame n is shown at n * n / 12 seconds, the last one to the end of its
  // packet.
  MediaFacts facts = *ProbeVideo("mkv", Golden("video/h264-variable.mkv"), Limits{}, FrameLoader::kAccurate);
  EXPECT_EQ(facts.num_frames, 24u);
  EXPECT_NEAR(static_cast<double>(facts.fps_num) / facts.fps_den, 24 / 44.1, 0.01);
  EXPECT_NEAR(static_cast<double>(facts.duration_us), 44.1e6, 1e5);
}

TEST(Video, FramesThatAnEditListCutsOffAreNotCounted) {
  MediaFacts facts = *ProbeVideo("mp4", Golden("video/h264-cut.mp4"), Limits{}, FrameLoader::kAccurate);
  EXPECT_EQ(facts.num_frames, 18u);
  std::vector<uint32_t> all(24), cut(18);
  std::iota(all.begin(), all.end(), 0);
  std::iota(cut.begin(), cut.end(), 0);
  absl::StatusOr<Decoded> whole = Decode("h264.mp4", Golden("video/h264.mp4"), all);
  absl::StatusOr<Decoded> rest = Decode("h264-cut.mp4", Golden("video/h264-cut.mp4"), cut);
  ASSERT_TRUE(whole.ok() && rest.ok());
  EXPECT_EQ(rest->repeated, 0u);
  EXPECT_TRUE(std::equal(rest->rgb.begin(), rest->rgb.end(), whole->rgb.end() - rest->rgb.size()));
}

// The pictures that lead the first one need others from before it: the decoder gives none of them, and
// Matroska gives them no times.
TEST(Video, FramesThatLeadACutAreNotCountedWhereTheyHaveNoTimes) {
  for (const char* codec : {"h264", "hevc"}) {
    SCOPED_TRACE(codec);
    const std::string open = absl::StrCat("video/", codec, "-open.mp4"),
                      cut = absl::StrCat("video/", codec, "-cut.mkv");
    MediaFacts facts = *ProbeVideo("mkv", Golden(cut), Limits{}, FrameLoader::kAccurate);
    EXPECT_EQ(facts.num_frames, 16u);
    EXPECT_EQ(facts.fps_num, 12 * facts.fps_den);
    std::vector<uint32_t> all(24), shown(16);
    std::iota(all.begin(), all.end(), 0);
    std::iota(shown.begin(), shown.end(), 0);
    absl::StatusOr<Decoded> whole = Decode("open.mp4", Golden(open), all);
    absl::StatusOr<Decoded> rest = Decode("cut.mkv", Golden(cut), shown);
    ASSERT_TRUE(whole.ok() && rest.ok()) << whole.status() << rest.status();
    EXPECT_EQ(rest->repeated, 0u);
    EXPECT_TRUE(std::equal(rest->rgb.begin(), rest->rgb.end(), whole->rgb.end() - rest->rgb.size()));
    absl::StatusOr<Decoded> some = Decode("cut.mkv", Golden(cut), {1, 7});
    ASSERT_TRUE(some.ok()) << some.status();
    const size_t frame = rest->rgb.size() / 16;
    EXPECT_TRUE(std::equal(some->rgb.begin(), some->rgb.begin() + frame, rest->rgb.begin() + frame));
  }
}

TEST(Video, FramesThatLeadACutAreCountedWhereTheyCanBeDecoded) {
  const Bytes bytes = Golden("video/hevc-cut-radl.mkv");
  EXPECT_EQ(ProbeVideo("mkv", bytes, Limits{}, FrameLoader::kAccurate)->num_frames, 18u);
  std::vector<uint32_t> all(18);
  std::iota(all.begin(), all.end(), 0);
  absl::StatusOr<Decoded> decoded = Decode("cut.mkv", bytes, all);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->repeated, 0u);
}

TEST(Video, RotationIsAppliedWhereItIsAskedFor) {
  Bytes bytes = Golden("video/h264-rotated.mp4");
  MediaFacts facts = *ProbeVideo("mp4", bytes, Limits{}, FrameLoader::kAccurate);
  EXPECT_EQ(facts.rotation, 270u);
  const MediaFacts upright = Upright(facts);
  EXPECT_EQ(upright.width, facts.height);
  EXPECT_EQ(upright.height, facts.width);
  EXPECT_EQ(upright.rotation, 0u);
  for (uint32_t rotation : {0u, 90u, 180u, 270u}) {
    facts.rotation = rotation;
    std::vector<uint8_t> stored, turned;
    uint64_t repeated = 0;
    auto into = [](std::vector<uint8_t>& out, uint32_t width) {
      return [&out, width](size_t, FrameRows rows) { return AppendRgb(rows, width, out); };
    };
    VideoWish wish{[](std::span<const int64_t>, std::vector<uint32_t>& chosen) { chosen = {7}; }};
    wish.loader = FrameLoader::kAccurate;
    ASSERT_TRUE(DecodeVideo("mp4", bytes, Limits{}, facts, wish, into(stored, facts.width), &repeated).ok());
    wish.upright = true;
    ASSERT_TRUE(
        DecodeVideo("mp4", bytes, Limits{}, facts, wish, into(turned, Upright(facts).width), &repeated).ok());
    ASSERT_EQ(turned.size(), stored.size());
    const uint32_t width = facts.width, height = facts.height;
    for (uint32_t y = 0; y < height; ++y) {
      for (uint32_t x = 0; x < width; ++x) {
        uint32_t to_x = x, to_y = y, to_width = width;  // where a clockwise turn takes the pixel
        if (rotation == 90) to_x = height - 1 - y, to_y = x, to_width = height;
        if (rotation == 180) to_x = width - 1 - x, to_y = height - 1 - y;
        if (rotation == 270) to_x = y, to_y = width - 1 - x, to_width = height;
        for (uint32_t c = 0; c < 3; ++c) {
          ASSERT_EQ(turned[(to_y * to_width + to_x) * 3 + c], stored[(y * width + x) * 3 + c]) << rotation;
        }
      }
    }
  }
}

// A copy of an MP4 whose only track has this display matrix: a, b, c, d of ISO 14496-12, 8.3.2.
Bytes WithMatrix(Bytes bytes, std::array<int32_t, 4> matrix) {
  constexpr std::string_view kTrackHeader = "tkhd";
  constexpr size_t kMatrixAfterName = 4 + 4 + 20 + 16;  // its name, version and flags, times, what is shown
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t at = text.find(kTrackHeader) + kMatrixAfterName;
  for (size_t i = 0; i < matrix.size(); ++i) {
    const auto value = static_cast<uint32_t>(matrix[i]);
    const size_t to = at + (i / 2 * 3 + i % 2) * sizeof(value);
    for (size_t byte = 0; byte < sizeof(value); ++byte) {
      bytes[to + byte] = static_cast<std::byte>(value >> (24 - 8 * byte) & 255);
    }
  }
  return bytes;
}

TEST(Video, RotationIsTheNearestQuarterOfTheDisplayMatrix) {
  const Bytes bytes = Golden("video/h264.mp4");
  constexpr int32_t kOne = 1 << 16;
  const std::pair<std::array<int32_t, 4>, uint32_t> kMatrices[] = {
      {{kOne, 0, 0, kOne}, 0},
      {{0, kOne, -kOne, 0}, 90},
      {{-kOne, 0, 0, -kOne}, 180},
      {{0, -kOne, kOne, 0}, 270},
      {{3, kOne, -kOne, 3}, 90},
      {{-kOne, 400, -400, -kOne}, 180},
      {{56756, 32768, -32768, 56756}, 0},  // 30 degrees
      {{32768, 56756, -56756, 32768}, 90},
      {{-kOne, 0, 0, kOne}, 180},  // mirrored, of which torchcodec makes half a turn
      {{kOne, 0, 0, -kOne}, 0},
      {{2 * kOne, 0, 0, kOne}, 0},
  };
  for (const auto& [matrix, quarter] : kMatrices) {
    EXPECT_EQ(ProbeVideo("mp4", WithMatrix(bytes, matrix), Limits{}, FrameLoader::kAccurate)->rotation,
              quarter)
        << matrix[0] << " " << matrix[1];
  }
}

TEST(Video, EmptyPlacesOfAnAviAreTimeButNoFrames) {
  const Bytes bytes = Golden("video/h264-slots.avi");
  absl::StatusOr<MediaFacts> facts = ProbeVideo("avi", bytes, Limits{}, FrameLoader::kAccurate);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->num_frames, 24u);
  EXPECT_NEAR(static_cast<double>(facts->fps_num) / facts->fps_den, 12, 0.5);
  EXPECT_NEAR(static_cast<double>(facts->duration_us), 2e6, 1e5);
}

TEST(Video, RefusesWhatHasNoPromiseAndWhatHasNoFrames) {
  EXPECT_TRUE(absl::IsUnimplemented(
      ProbeVideo("mkv", Golden("video/refused.mkv"), Limits{}, FrameLoader::kAccurate).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ProbeVideo("mp4", Golden("video/no-video.mp4"), Limits{}, FrameLoader::kAccurate).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ProbeVideo("mp4", Golden("video/mpeg4.avi"), Limits{}, FrameLoader::kAccurate).status()));
  EXPECT_TRUE(absl::IsUnimplemented(
      ProbeVideo("gif", Golden("video/mpeg4.avi"), Limits{}, FrameLoader::kAccurate).status()));
}

TEST(Video, LimitsAreEnforced) {
  Bytes bytes = Golden("video/h264.mp4");
  Limits limits;
  limits.max_video_bytes = 100;
  EXPECT_TRUE(absl::IsResourceExhausted(ProbeVideo("mp4", bytes, limits, FrameLoader::kAccurate).status()));
  limits = Limits{};
  limits.max_video_pixels = 100;
  EXPECT_TRUE(absl::IsResourceExhausted(ProbeVideo("mp4", bytes, limits, FrameLoader::kAccurate).status()));
  limits = Limits{};
  limits.max_video_frames = 10;
  EXPECT_TRUE(absl::IsResourceExhausted(ProbeVideo("mp4", bytes, limits, FrameLoader::kAccurate).status()));
}

TEST(Video, OtherDimensionsThanTheIndexSaysAreDataLoss) {
  Bytes bytes = Golden("video/h264.mp4");
  MediaFacts facts = *ProbeVideo("mp4", bytes, Limits{}, FrameLoader::kAccurate);
  facts.width = 64;
  uint64_t repeated = 0;
  std::vector<uint32_t> chosen = {0};
  auto sink = [](size_t, FrameRows) { return absl::OkStatus(); };
  EXPECT_TRUE(absl::IsDataLoss(
      DecodeVideo("mp4", bytes, Limits{}, facts, chosen, FrameLoader::kAccurate, sink, &repeated)));
}

TEST(Video, MutationsGiveErrorsOfATypeAndTheSameVerdictTwice) {
  for (const std::string& name : Files()) {
    Bytes original = Golden("video/" + name);
    for (uint64_t n = 0; n < MutationCount(25); ++n) {
      Bytes bytes = Mutated(original, n);
      auto first = Decode(name, bytes, {0, 7, 20});
      auto second = Decode(name, bytes, {0, 7, 20});
      ASSERT_EQ(first.status(), second.status()) << name << " mutation " << n;
      if (first.ok()) {
        ASSERT_EQ(first->rgb, second->rgb) << name << " mutation " << n;
        continue;
      }
      ASSERT_THAT(first.status().code(),
                  testing::AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kDataLoss,
                                 absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnimplemented))
          << name << " mutation " << n << " " << first.status();
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
