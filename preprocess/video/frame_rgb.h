// Converts decoded video frames to RGB8, with libswscale's arithmetic and a loader's flags. 8-bit YUV, which
// is nearly all video, is converted by code of our own, which gives the same bytes several times as fast;
// other formats go through swscale itself:
//
//   loader      8-bit 4:2:0 and 4:2:2 of even height   8-bit 4:4:4 and grey   others, enlarging chroma by
//   torchcodec  repeated_chroma.h                      ours                   swscale's bicubic filter
//   pyav        repeated_chroma.h                      ours                   its bilinear one
//   decord      repeated_chroma.h                      ours                   its bilinear one
//   accurate    ours (4:2:0, even sides)               ours                   its bilinear one, at full width
//
// swscale uses the same instructions on every CPU (preprocess/ffmpeg.cc), so its bytes do not depend on the
// CPU either. The frame's own matrix and range are used; rotation and cropping are done elsewhere.
//
// Thread safety: an object belongs to one thread. It keeps its buffers between frames.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "preprocess/image/image.h"
#include "preprocess/scratch.h"
#include "preprocess/video/frame_loader.h"

struct AVFrame;
struct SwsContext;

namespace evenkeel::preprocess {

enum class RgbPath : uint8_t {
  kFastest,   // the fastest that this CPU and the frame allow
  kPortable,  // our code, without vector instructions
  kSwscale,
};

class FrameRgb {
 public:
  explicit FrameRgb(RgbPath path = RgbPath::kFastest) : path_(path) {}

  // Writes all rows of the frame to `sink`, in one or more bands, as `loader` has them. Unimplemented: a
  // pixel format that swscale cannot read; DataLoss: swscale failed.
  absl::Status Convert(const AVFrame& frame, FrameLoader loader, BandSink& sink);
  // Releases buffers of earlier frames that are too large to keep.
  void ForgetLarge();

 private:
  struct ScalerFree {
    void operator()(SwsContext* scaler) const;
  };
  absl::Status PrepareScaler(const AVFrame& frame, FrameLoader loader, int space, bool full);
  absl::Status ConvertBySwscale(const AVFrame& frame, FrameLoader loader, int space, bool full,
                                BandSink& sink);
  void ConvertRepeatedChroma(const AVFrame& frame, int space, bool full, BandSink& sink);
  void ConvertFullChroma(const AVFrame& frame, int space, bool full, BandSink& sink);
  void ConvertPlanar420(const AVFrame& frame, int space, bool full, BandSink& sink);
  bool may_use_vectors() const;

  RgbPath path_;
  ScratchBytes band_;            // kBandRows rows of planes
  std::vector<int16_t> chroma_;  // rows of chroma at full width, in units of 1/128
  // swscale's context, and the kind of frames that it was made for:
  std::unique_ptr<SwsContext, ScalerFree> scaler_;
  int width_ = 0, height_ = 0, format_ = -1, space_ = -1, flags_ = -1;
  bool full_ = false;
  int stride_ = 0;
  size_t offset_ = 0;
  std::vector<uint8_t> padded_;
};

}  // namespace evenkeel::preprocess
