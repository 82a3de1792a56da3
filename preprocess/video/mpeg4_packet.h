// Which packets of MPEG-4 part 2 give a frame, as FFmpeg's decoder takes them.
//
// One packet, one frame is the rule, but not in AVI: DivX and XviD pack a B picture behind the picture that
// it needs, to be shown in place of the packet after it, which says only that nothing is coded. Other packets
// are a single byte, for a frame that the encoder left out. And B pictures at the beginning cannot be
// decoded.
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
  // `extradata`: the headers that the container has.
  explicit Mpeg4Packets(std::span<const uint8_t> extradata);

  // The next packet, in the order of decoding.
  PictureKind Parse(std::span<const uint8_t> packet);

  // Pictures were shown in place of later packets so far, whose times are not theirs.
  bool displaces() const { return displaces_; }

 private:
  struct Vop {
    int type = 0;
    bool coded = true;
    size_t end_of_code = 0;  // where it was found: one past its start code
  };
  // Reads headers before the first picture, and that picture's.
  std::optional<Vop> Read(std::span<const uint8_t> bytes);
  void ReadLayer(std::span<const uint8_t> bytes);
  void ReadUserData(std::span<const uint8_t> bytes);
  // A coded picture that has its references gives a frame; nothing before the first I picture does.
  bool Shows(const Vop& vop);
  void Keep(std::span<const uint8_t> packet, size_t from);

  int time_bits_ = 0;       // of a picture's time; 0: not known yet
  bool is_packed_ = false;  // as the encoder says of itself
  bool displaces_ = false;
  uint64_t layer_hash_ = 0;  // of the headers before the last picture that was read; 0: none
  int references_ = 0;       // decoded so far, at most two
  std::optional<Vop> kept_;  // the second picture of the packet before
};

}  // namespace evenkeel::preprocess
