// What the first bytes of a video packet say about its picture.
//
// Thread safety: pure, const after construction.
#pragma once

#include <cstdint>
#include <span>

extern "C" {
#include <libavcodec/codec_par.h>
}

namespace evenkeel {

struct PictureKind {
  bool known = false;           // the packet could be read
  bool shows = true;            // not hidden
  bool starts = false;          // decoding may start here: IDR, IRAP, a key frame that is shown, an I-VOP
  bool disposable = false;      // no other picture of its temporal layer refers to it
  uint32_t layer = 0;           // temporal layer
  uint64_t parameter_sets = 0;  // hash of those inside; 0: none
};

class PictureParser {
 public:
  explicit PictureParser(const AVCodecParameters& parameters);
  PictureKind Parse(std::span<const uint8_t> packet) const;

  // Pictures are presented in the order of decoding.
  bool in_order() const;

 private:
  PictureKind ParseNalUnits(std::span<const uint8_t> packet) const;

  AVCodecID codec_;
  uint32_t nal_length_bytes_ = 0;  // 0: not length-prefixed, as in AVI
};

}  // namespace evenkeel
