// Classifies a video's pictures by the first bytes of their packets.
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
  // Parses the next packet, in decoding order.
  PictureKind Parse(std::span<const uint8_t> packet);

  // True if the codec presents pictures in decoding order.
  bool in_order() const;
  // True if packets showed pictures of earlier packets, so that the container's times are not theirs.
  bool displaces() const { return mpeg4_.has_value() && mpeg4_->displaces(); }

 private:
  PictureKind ParseNalUnits(std::span<const uint8_t> packet);

  AVCodecID codec_;
  uint32_t nal_length_bytes_ = 0;  // size of a NAL unit's length prefix; 0: none, as in AVI
  bool has_access_point_ = false;
  std::optional<Mpeg4Packets> mpeg4_;
};

}  // namespace evenkeel::preprocess
