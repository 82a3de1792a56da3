// Which packets of MPEG-4 part 2 give a frame, following FFmpeg's decoder.
//
// Normally one packet is one frame, but not in AVI: DivX and XviD pack a B picture after the picture that it
// needs. It is shown in place of the next packet, which only signals that nothing is coded. Other packets are
// a single byte, for a frame that the encoder skipped. And B pictures at the beginning cannot be decoded.
//
// Thread safety: an object belongs to one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "preprocess/video/picture_kind.h"

namespace evenkeel::preprocess {

class Mpeg4Packets {
 public:
  // `extradata`: the headers from the container.
  explicit Mpeg4Packets(std::span<const uint8_t> extradata);

  // Parses the next packet, in decoding order.
  PictureKind Parse(std::span<const uint8_t> packet);

  // True if a picture was shown in place of a later packet, so that the packets' times are not the pictures'.
  bool displaces() const { return displaces_; }

 private:
  struct Vop {
    int type = 0;
    bool coded = true;
    size_t end_of_code = 0;  // one past its start code
  };
  // Reads the headers before the first picture, and the picture's own header.
  std::optional<Vop> Read(std::span<const uint8_t> bytes);
  void ReadLayer(std::span<const uint8_t> bytes);
  void ReadUserData(std::span<const uint8_t> bytes);
  // True if the picture gives a frame: it is coded, and its references were decoded.
  bool Shows(const Vop& vop);
  void Keep(std::span<const uint8_t> packet, size_t from);

  int time_bits_ = 0;       // size of a picture's time field in bits; 0: unknown
  bool is_packed_ = false;  // according to the encoder's user data
  bool displaces_ = false;
  uint64_t layer_hash_ = 0;  // hash of the headers before the last picture; 0: none
  int references_ = 0;       // reference pictures decoded so far, at most two
  std::optional<Vop> kept_;  // the second picture of the previous packet
};

}  // namespace evenkeel::preprocess
