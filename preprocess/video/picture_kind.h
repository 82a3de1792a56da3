// What the first bytes of a video packet say about its picture.
#pragma once

#include <cstdint>
#include <span>

namespace evenkeel::preprocess {

struct PictureKind {
  bool known = false;           // the packet could be read, and holds one picture
  bool shows = true;            // not hidden
  bool irap = false;            // of HEVC: an access point, also where `starts` is not
  bool starts = false;          // decoding may start here: IDR, IRAP, a key frame that is shown, an I-VOP
  bool disposable = false;      // no other picture of its temporal layer refers to it
  uint32_t layer = 0;           // temporal layer
  uint64_t parameter_sets = 0;  // hash of those inside; 0: none
};

// Of parameter sets; only compared within one video. `hash`: of those before them, 0 where there are none.
uint64_t HashParameterSets(std::span<const uint8_t> bytes, uint64_t hash);

}  // namespace evenkeel::preprocess
