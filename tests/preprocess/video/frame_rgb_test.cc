#include "preprocess/video/frame_rgb.h"

#include <gtest/gtest.h>

extern "C" {
#include <libavutil/frame.h>
#include <libavutil/log.h>
#include <libavutil/pixfmt.h>
}

#include "preprocess/ffmpeg.h"
#include "tests/preprocess/files.h"
#include "tests/preprocess/video/frames.h"

namespace evenkeel::preprocess {
namespace {

// Random bytes; every value of every plane, so also those that a video seldom has.
FramePtr Noise(int width, int height, int format, int space, int range, uint64_t seed) {
  FramePtr frame(av_frame_alloc());
  frame->width = width;
  frame->height = height;
  frame->format = format;
  frame->colorspace = static_cast<AVColorSpace>(space);
  frame->color_range = static_cast<AVColorRange>(range);
  EXPECT_EQ(av_frame_get_buffer(frame.get(), 64), 0);
  Dice dice(seed);
  for (int plane = 0; plane < 3; ++plane) {
    for (int y = 0; y < (plane == 0 ? height : (height + 1) / 2); ++y) {
      uint8_t* row = frame->data[plane] + y * frame->linesize[plane];
      for (int x = 0; x < frame->linesize[plane]; ++x) row[x] = static_cast<uint8_t>(dice.Roll(256));
    }
  }
  return frame;
}

std::vector<uint8_t> Converted(const AVFrame& frame, FrameRgb& rgb) {
  std::vector<uint8_t> bytes;
  AppendedRgb sink(static_cast<uint32_t>(frame.width), bytes);
  const absl::Status status = rgb.Convert(frame, sink);
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

std::vector<uint8_t> Converted(const AVFrame& frame, RgbPath path) {
  FrameRgb rgb(path);
  return Converted(frame, rgb);
}

TEST(FrameRgb, EveryPathGivesTheBytesOfSwscale) {
  const int sizes[][2] = {{4, 4},   {16, 6},  {8, 8},    {10, 8}, {8, 10}, {50, 38},
                          {64, 64}, {98, 20}, {130, 34}, {7, 9},  {33, 16}};
  uint64_t seed = 0;
  av_log_set_level(AV_LOG_QUIET);  // swscale calls yuvj420p deprecated
  for (auto [width, height] : sizes) {
    for (int space : {AVCOL_SPC_UNSPECIFIED, AVCOL_SPC_BT709, AVCOL_SPC_SMPTE170M, AVCOL_SPC_SMPTE240M,
                      AVCOL_SPC_BT2020_NCL, AVCOL_SPC_FCC}) {
      for (int range : {AVCOL_RANGE_UNSPECIFIED, AVCOL_RANGE_MPEG, AVCOL_RANGE_JPEG}) {
        for (int format : {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUVJ420P}) {
          FramePtr frame = Noise(width, height, format, space, range, ++seed);
          std::vector<uint8_t> expected = Converted(*frame, RgbPath::kSwscale);
          EXPECT_EQ(Converted(*frame, RgbPath::kPortable), expected)
              << width << "x" << height << " " << space;
          EXPECT_EQ(Converted(*frame, RgbPath::kFastest), expected) << width << "x" << height << " " << space;
        }
      }
    }
  }
}

TEST(FrameRgb, AnObjectTakesFramesOfChangingKinds) {
  FrameRgb rgb;
  for (int format : {AV_PIX_FMT_YUV420P, AV_PIX_FMT_YUV444P, AV_PIX_FMT_YUV420P10LE, AV_PIX_FMT_YUV422P}) {
    for (int width : {32, 48}) {
      FramePtr frame = Noise(width, 32, AV_PIX_FMT_YUV444P16LE, AVCOL_SPC_BT709, AVCOL_RANGE_MPEG, 5);
      frame->format = format;  // smaller than the planes that were made
      EXPECT_EQ(Converted(*frame, rgb), Converted(*frame, RgbPath::kSwscale));
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
