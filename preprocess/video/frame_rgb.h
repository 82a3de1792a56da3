// Decoded video frames to RGB8, as swscale does it with bilinear chroma, full chroma interpolation, accurate
// rounding and bit-exactness. 8-bit 4:2:0, which is nearly all video, goes through arithmetic of our own that
// gives the same bytes several times as fast; the rest goes through swscale itself.
//
// The frame's own matrix and range are used; rotation and cropping are not its business.
//
// Thread safety: an object belongs to one thread. It keeps its buffers between frames.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "preprocess/image/image.h"
#include "preprocess/scratch.h"

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

  // All rows of the frame, a few at a time or at once, to `sink`. Unimplemented: a pixel format that swscale
  // does not read.
  absl::Status Convert(const AVFrame& frame, BandSink& sink);
  // Gives back what frames before were larger than is worth keeping.
  void ForgetLarge();

 private:
  struct ScalerFree {
    void operator()(SwsContext* scaler) const;
  };
  absl::Status PrepareScaler(const AVFrame& frame, int space, bool full);
  absl::Status ConvertBySwscale(const AVFrame& frame, int space, bool full, BandSink& sink);
  void ConvertPlanar420(const AVFrame& frame, int space, bool full, BandSink& sink);

  RgbPath path_;
  ScratchBytes band_;            // kBandRows rows of planes
  std::vector<int16_t> chroma_;  // rows of chroma at full width
  // swscale's, for frames of one kind:
  std::unique_ptr<SwsContext, ScalerFree> scaler_;
  int width_ = 0, height_ = 0, format_ = -1, space_ = -1;
  bool full_ = false;
  int stride_ = 0;
  size_t offset_ = 0;
  std::vector<uint8_t> padded_;
};

}  // namespace evenkeel::preprocess
