// Tells the kinds of a video's pictures from the first bytes of its packets.
//
// Thread safety: an object belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

extern "C" {
#include <libavcodec/codec_par.h>
}

#include "preprocess/video/mpeg4_packet.h"
#include "preprocess/video/picture_kind.h"

namespace evenkeel::preprocess {

class PictureParser {
 public:
  explicit PictureParser(const AVCodecParameters& parameters);
  // The next packet, in the order of decoding.
  PictureKind Parse(std::span<const uint8_t> packet);

  // Pictures are presented in the order of decoding.
  bool in_order() const;
  // Packets showed pictures of packets before them: the container's times are not theirs.
  bool displaces() const { return mpeg4_.has_value() && mpeg4_->displaces(); }

 private:
  PictureKind ParseNalUnits(std::span<const uint8_t> packet);

  AVCodecID codec_;
  uint32_t nal_length_bytes_ = 0;  // 0: not length-prefixed, as in AVI
  bool has_access_point_ = false;
  std::optional<Mpeg4Packets> mpeg4_;
};

}  // namespace evenkeel::preprocess
