// Frames to RGB8: every path, loader and pixel format against libswscale itself.
#include "preprocess/video/frame_rgb.h"

#include <gtest/gtest.h>

extern "C" {
#include <libavutil/cpu.h>
#include <libavutil/frame.h>
#include <libavutil/log.h>
#include <libavutil/pixdesc.h>
}

#include "absl/strings/str_cat.h"
#include "preprocess/ffmpeg.h"
#include "tests/preprocess/files.h"
#include "tests/preprocess/video/frames.h"

namespace evenkeel::preprocess {
namespace {

// Random samples; every value of every plane, so also those that a video seldom has.
FramePtr Noise(int width, int height, int format, int space, int range, uint64_t seed) {
  FramePtr frame(av_frame_alloc());
  frame->width = width;
  frame->height = height;
  frame->format = format;
  frame->colorspace = static_cast<AVColorSpace>(space);
  frame->color_range = static_cast<AVColorRange>(range);
  EXPECT_EQ(av_frame_get_buffer(frame.get(), 64), 0);
  const int depth = av_pix_fmt_desc_get(static_cast<AVPixelFormat>(format))->comp[0].depth;
  Dice dice(seed);
  for (const AVBufferRef* plane : frame->buf) {
    for (size_t i = 0; plane != nullptr && i < plane->size; ++i) {
      const bool high = depth > 8 && i % 2 == 1;  // the upper byte of a little-endian sample
      plane->data[i] = static_cast<uint8_t>(dice.Roll(high ? 1 << (depth - 8) : 256));
    }
  }
  return frame;
}

std::vector<uint8_t> Converted(const AVFrame& frame, FrameRgb& rgb, FrameLoader loader) {
  std::vector<uint8_t> bytes;
  AppendedRgb sink(static_cast<uint32_t>(frame.width), bytes);
  const absl::Status status = rgb.Convert(frame, loader, sink);
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

std::vector<uint8_t> Converted(const AVFrame& frame, RgbPath path, FrameLoader loader) {
  FrameRgb rgb(path);
  return Converted(frame, rgb, loader);
}

constexpr FrameLoader kLoaders[] = {FrameLoader::kTorchcodec, FrameLoader::kPyav, FrameLoader::kDecord,
                                    FrameLoader::kAccurate};

#ifdef __x86_64__
// On other architectures swscale has no such code, and its portable code gives other bytes.
TEST(FrameRgb, EveryPathGivesTheBytesOfSwscale) {
  const int sizes[][2] = {{4, 4},   {16, 6},   {8, 8}, {10, 8},  {8, 10},  {50, 38}, {64, 64},
                          {98, 20}, {130, 34}, {7, 9}, {33, 16}, {35, 18}, {65, 2},  {129, 3}};
  uint64_t seed = 0;
  av_log_set_level(AV_LOG_QUIET);  // swscale calls yuvj420p deprecated
  for (auto [width, height] : sizes) {
    for (int space : {AVCOL_SPC_UNSPECIFIED, AVCOL_SPC_BT709, AVCOL_SPC_SMPTE170M, AVCOL_SPC_SMPTE240M,
                      AVCOL_SPC_BT2020_NCL, AVCOL_SPC_FCC}) {
      for (int range : {AVCOL_RANGE_UNSPECIFIED, AVCOL_RANGE_MPEG, AVCOL_RANGE_JPEG}) {
        for (int format : {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUVJ420P, AV_PIX_FMT_YUV422P, AV_PIX_FMT_YUVJ422P,
                           AV_PIX_FMT_YUV444P, AV_PIX_FMT_YUVJ444P, AV_PIX_FMT_GRAY8}) {
          FramePtr frame = Noise(width, height, format, space, range, ++seed);
          for (FrameLoader loader : kLoaders) {
            SCOPED_TRACE(absl::StrCat(width, "x", height, " format ", format, " space ", space, " range ",
                                      range, " ", std::string(FrameLoaderName(loader))));
            const std::vector<uint8_t> expected = Converted(*frame, RgbPath::kSwscale, loader);
            EXPECT_TRUE(Converted(*frame, RgbPath::kPortable, loader) == expected);
            EXPECT_TRUE(Converted(*frame, RgbPath::kFastest, loader) == expected);
          }
        }
      }
    }
  }
}

// What goes through swscale has the bytes of its portable code whatever the CPU has.
TEST(FrameRgb, SwscalesInstructionsChangeNoByte) {
  const int before = av_get_cpu_flags();
  for (auto [width, height] : {std::pair(64, 48), std::pair(33, 17), std::pair(74, 41)}) {
    for (int format : {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV422P, AV_PIX_FMT_NV12, AV_PIX_FMT_YUV420P10LE,
                       AV_PIX_FMT_YUV422P10LE, AV_PIX_FMT_YUV444P10LE, AV_PIX_FMT_YUV420P12LE,
                       AV_PIX_FMT_GRAY10LE, AV_PIX_FMT_GBRP, AV_PIX_FMT_RGB24}) {
      const bool ours = height % 2 == 0 && (format == AV_PIX_FMT_YUV420P || format == AV_PIX_FMT_YUV422P);
      if (ours) continue;
      FramePtr frame = Noise(width, height, format, AVCOL_SPC_BT709, AVCOL_RANGE_MPEG, 3);
      for (FrameLoader loader : kLoaders) {
        const std::vector<uint8_t> expected = Converted(*frame, RgbPath::kFastest, loader);
        av_force_cpu_flags(0);
        EXPECT_TRUE(Converted(*frame, RgbPath::kFastest, loader) == expected)
            << width << "x" << height << " format " << format << " " << FrameLoaderName(loader);
        av_force_cpu_flags(before);
      }
    }
  }
}
#endif

// Figures by hand from the rule of repeated_chroma.h, so that the test does not depend on swscale.
TEST(FrameRgb, LoadersRepeatChromaAndKeepSixteenBitsOfProducts) {
  FramePtr frame = Noise(8, 2, AV_PIX_FMT_YUV420P, AVCOL_SPC_UNSPECIFIED, AVCOL_RANGE_MPEG, 1);
  for (int x = 0; x < 8; ++x) frame->data[0][x] = frame->data[0][frame->linesize[0] + x] = 100;
  for (int x = 0; x < 4; ++x) frame->data[1][x] = 90, frame->data[2][x] = x == 0 ? 200 : 128;
  // y = (800 - 128) * 9539 >> 16 = 97; u = -304: * 16525 >> 16 = -77, * -3209 >> 16 = 14;
  // v = 576: * 13075 >> 16 = 114, * -6660 >> 16 = -59.
  for (RgbPath path : {RgbPath::kPortable, RgbPath::kFastest}) {
    const std::vector<uint8_t> rgb = Converted(*frame, path, FrameLoader::kTorchcodec);
    const std::vector<uint8_t> first(rgb.begin(), rgb.begin() + 9);
    EXPECT_EQ(first, (std::vector<uint8_t>{211, 52, 20, 211, 52, 20, 97, 111, 20}));
  }
}

TEST(FrameRgb, AnObjectTakesFramesOfChangingKinds) {
  FrameRgb rgb;
  for (int format : {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV444P, AV_PIX_FMT_YUV420P10LE, AV_PIX_FMT_YUV422P}) {
    for (int width : {32, 48}) {
      for (FrameLoader loader : kLoaders) {
        FramePtr frame = Noise(width, 32, AV_PIX_FMT_YUV444P16LE, AVCOL_SPC_BT709, AVCOL_RANGE_MPEG, 5);
        frame->format = format;  // smaller than the planes that were made
        EXPECT_EQ(Converted(*frame, rgb, loader), Converted(*frame, RgbPath::kFastest, loader));
      }
    }
  }
}

TEST(FrameRgb, ALoaderIsOneOfFourWords) {
  for (FrameLoader loader : kLoaders) EXPECT_EQ(*FrameLoaderOf(FrameLoaderName(loader)), loader);
  EXPECT_EQ(*FrameLoaderOf(""), FrameLoader::kTorchcodec);
  EXPECT_EQ(FrameLoaderOf("opencv").status().message(),
            "processor.frames: 'opencv' is not one of torchcodec, pyav, decord, accurate; nearest is 'pyav'");
}

}  // namespace
}  // namespace evenkeel::preprocess
