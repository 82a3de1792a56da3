// Rows of a decoded AVIF or HEIF picture to RGB8, bit for bit as the library behind Pillow converts them: libavif with
// libyuv for AVIF, libheif for HEIF. Portable integers, and floats in one order.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(HeifRows rows, HeifRows::Make(planes, HeifCodec::kAv1));
//     for (uint32_t y = 0; y < planes.size.height; ++y) rows.ToRgba(y, rgba);  // 4 * width bytes
//
// Thread safety: none; it belongs to one decode.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "preprocess/image/heif_boxes.h"

namespace evenkeel::preprocess {

// One plane: samples of one byte, or two in the machine's order where the depth is more than 8.
struct CodedPlane {
  const uint8_t* first = nullptr;
  size_t stride = 0;  // bytes from row to row
};

struct CodedPlanes {
  ImageSize size;
  uint32_t depth = 8;                            // 8, 10 or 12
  bool grey = false;                             // Y alone
  bool half_width = false, half_height = false;  // of Cb and Cr
  std::array<CodedPlane, 3> yuv;
  CodedColours colours;
  CodedPlane alpha;  // of the same size and depth; without `first` the picture has no alpha
  bool alpha_full_range = true;
};

class HeifRows {
 public:
  // Unimplemented: a matrix that the library does not convert, or a combination that it treats otherwise.
  static absl::StatusOr<HeifRows> Make(const CodedPlanes& planes, HeifCodec codec);

  // `rgba`: 4 * width bytes; alpha is 255 in pictures without alpha.
  void ToRgba(uint32_t y, uint8_t* rgba);

  // How Y, Cb and Cr become colours.
  enum class Method : uint8_t {
    kGrey,     // Y alone, kept
    kScaled,   // libyuv: integers of 6 bits of fraction
    kFloats,   // libavif's own
    kRounded,  // libheif: integers of 8 bits of fraction, of full range
    kHeifFloats,
  };

 private:
  HeifRows(const CodedPlanes& planes, HeifCodec codec);
  absl::Status ChooseForAvif();
  absl::Status ChooseForHeif();

  uint16_t SampleAt(const CodedPlane& plane, uint32_t x, uint32_t y) const;
  void ReadRow(const CodedPlane& plane, uint32_t width, uint32_t y, uint16_t* out) const;
  // Cb or Cr of all pixels of a row.
  void ReadChroma(const CodedPlane& plane, uint32_t y, std::vector<uint16_t>& out);
  void ReadNearestChroma(const CodedPlane& plane, uint32_t y, std::vector<uint16_t>& out);
  void ReadFloatChroma(const CodedPlane& plane, uint32_t y, std::vector<float>& out);
  void ScaledRow(uint8_t* rgba) const;
  void FloatRow(uint32_t y, uint8_t* rgba);
  void RoundedRow(uint8_t* rgba) const;
  void HeifFloatRow(uint8_t* rgba) const;
  void AlphaRow(uint32_t y, uint8_t* rgba);

  CodedPlanes planes_;
  HeifCodec codec_;
  Method method_ = Method::kGrey;
  uint32_t shift_ = 0;               // bits that are dropped before anything else
  uint32_t depth_ = 8;               // of the samples after that
  bool nearest_ = false;             // chroma is repeated
  std::array<int32_t, 6> scaled_{};  // libyuv's numbers: y, bias, u of blue, u and v of green, v of red
  std::array<float, 4> floats_{};    // red of Cr, green of Cb and Cr, blue of Cb; or kr, kg, kb
  std::array<int32_t, 4> rounded_{};
  std::vector<uint16_t> y_, u_, v_, near_, far_;
  std::vector<float> cb_, cr_;
};

}  // namespace evenkeel::preprocess
