// Decoded video frames to RGB8, by libswscale's arithmetic with the flags of a loader. 8-bit YUV, which is
// nearly all video, goes through code of our own that gives the same bytes several times as fast; the rest
// goes through swscale itself:
//
//   loader      8-bit 4:2:0 and 4:2:2 of even height   8-bit 4:4:4 and grey   others, enlarging chroma by
//   torchcodec  repeated_chroma.h                      ours                   swscale's bicubic filter
//   pyav        repeated_chroma.h                      ours                   its bilinear one
//   decord      repeated_chroma.h                      ours                   its bilinear one
//   accurate    ours (4:2:0, even sides)               ours                   its bilinear one, at full width
//
// swscale runs with the same instructions everywhere (preprocess/ffmpeg.cc), so its bytes do not depend on
// the CPU either. The frame's own matrix and range are used; rotation and cropping are not its business.
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
  kFastest,   // of those below that this CPU and the frame allow
  kPortable,  // ours, without vector code
  kSwscale,
};

class FrameRgb {
 public:
  explicit FrameRgb(RgbPath path = RgbPath::kFastest) : path_(path) {}

  // All rows of the frame, a few at a time or at once, to `sink`, as `loader` has them. Unimplemented: a pixel
  // format that swscale does not read.
  absl::Status Convert(const AVFrame& frame, FrameLoader loader, BandSink& sink);
  // Gives back what frames before were larger than is worth keeping.
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
  std::vector<int16_t> chroma_;  // rows of chroma at full width
  // swscale's, for frames of one kind:
  std::unique_ptr<SwsContext, ScalerFree> scaler_;
  int width_ = 0, height_ = 0, format_ = -1, space_ = -1, flags_ = -1;
  bool full_ = false;
  int stride_ = 0;
  size_t offset_ = 0;
  std::vector<uint8_t> padded_;
};

}  // namespace evenkeel::preprocess
