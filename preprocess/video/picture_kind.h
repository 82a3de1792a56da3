// The kind of a video packet's picture, from its first bytes.
//
// Thread safety: plain values, and a pure function.
#pragma once

#include <cstdint>
#include <span>

namespace evenkeel::preprocess {

struct PictureKind {
  bool known = false;           // the packet was parsed, and contains one picture
  bool shows = true;            // not hidden
  bool irap = false;            // HEVC: an access point, even if decoding may not start here
  bool starts = false;          // decoding may start here: IDR, IRAP, a key frame that is shown, an I-VOP
  bool disposable = false;      // no other picture of its temporal layer refers to it
  uint32_t layer = 0;           // temporal layer
  uint64_t parameter_sets = 0;  // hash of the parameter sets inside; 0: none
};

// Hashes parameter sets; hashes are only compared within one video. `hash`: of the previous ones, or 0.
uint64_t HashParameterSets(std::span<const uint8_t> bytes, uint64_t hash);

}  // namespace evenkeel::preprocess
