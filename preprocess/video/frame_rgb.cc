// Converts decoded frames to RGB8: selects the code for a frame's format, and converts row by row. The
// integer arithmetic repeats libswscale's, so that the pixels equal those of the loaders.
#include "preprocess/video/frame_rgb.h"

#include <algorithm>
#include <cstring>
#include <utility>

extern "C" {
#include <libavutil/frame.h>
#include <libavutil/pixfmt.h>
#include <libswscale/swscale.h>
}

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "absl/strings/str_cat.h"
#include "core/cpu.h"
#include "core/status.h"
#include "preprocess/scratch.h"
#include "preprocess/video/repeated_chroma.h"

namespace evenkeel::preprocess {
namespace {

constexpr int kAlignment = 64;

// torchcodec passes 0, which means bicubic; PyAV and decord pass bilinear.
int ScalerFlags(FrameLoader loader) {
  switch (loader) {
    case FrameLoader::kTorchcodec:
      return SWS_BICUBIC;
    case FrameLoader::kPyav:
    case FrameLoader::kDecord:
      return SWS_BILINEAR;
    case FrameLoader::kAccurate:
      return SWS_BILINEAR | SWS_ACCURATE_RND | SWS_BITEXACT | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP;
  }
  return 0;
}

// libswscale's integers (libswscale/yuv2rgb.c): red = (y * (luma - black) + v_red * v) >> 22, and likewise
// for the other colours. Luma has 9 bits of fraction here; chroma is centred, in units of 1/128 (or the sum
// of two such values if two rows are averaged).
struct Coefficients {
  int16_t black;  // luma of black
  int16_t y, v_red, v_green, u_green, u_blue;
};

// swscale's table has, for a matrix such as BT.601 or BT.709, red of V, blue of U, and the negated parts of U
// and V in green, with 16 bits of fraction, for limited range: luma 16 to 235 (219 steps), chroma 16 to 240
// (224 steps). Full range therefore scales chroma by 224/255, and limited range luma by 255/219
// (ff_yuv2rgb_c_init_tables). Results have 13 bits of fraction and are rounded to nearest.
Coefficients CoefficientsOf(int space, bool full) {
  const int* table = sws_getCoefficients(space);
  int64_t v_red = table[0], u_blue = table[1], u_green = -table[2], v_green = -table[3];
  int64_t y = 1 << 16;
  if (full) {
    for (int64_t* chroma : {&v_red, &u_blue, &u_green, &v_green}) *chroma = *chroma * 224 / 255;
  } else {
    y = y * 255 / 219;
  }
  auto rounded = [](int64_t value) { return static_cast<int16_t>((value * (1 << 13) + (1 << 15)) >> 16); };
  return {static_cast<int16_t>(full ? 0 : 16),
          rounded(y),
          rounded(v_red),
          rounded(v_green),
          rounded(u_green),
          rounded(u_blue)};
}

// Doubles the width of a chroma row, in units of 1/128: three quarters (96) of the nearest value plus a
// quarter (32) of the next one, which is swscale's bilinear filter for chroma centred between two pixels. The
// first and the last pixel have no second neighbour. The largest value is 128 * 255 = 32640, which fits the
// 16 bits of the vector code.
void WidenChroma(const uint8_t* in, int width, int16_t* out) {
  const int last = width / 2 - 1;
  out[0] = static_cast<int16_t>(128 * in[0]);
  for (int i = 0; i < last; ++i) {
    out[2 * i + 1] = static_cast<int16_t>(96 * in[i] + 32 * in[i + 1]);
    out[2 * i + 2] = static_cast<int16_t>(32 * in[i] + 96 * in[i + 1]);
  }
  out[2 * last + 1] = static_cast<int16_t>(128 * in[last]);
}

// One row of pixels: luma, and one chroma row, or two whose sum is used.
struct RowOf420 {
  const uint8_t* luma;
  const int16_t* u[2];  // the second is null if one row is used
  const int16_t* v[2];
};

// Takes the integer part, clamped to a byte. Sums are unsigned so that they wrap as in swscale.
uint8_t Byte(uint32_t value) {
  return static_cast<uint8_t>(std::clamp(static_cast<int32_t>(value) >> 22, 0, 255));
}

// Pointers to a row's red, green and blue bytes.
using RgbRow = uint8_t* const[3];

// Everything is summed with 22 bits of fraction. Luma: 9 bits of its own and 13 of the coefficient. Chroma:
// with one row its values have 7 bits, with two their sum has 8, so `shift` is 2 or 1: 7 + 13 + 2 = 8 + 13 +
// 1 = 22. 1 << 21 is a half, for rounding to nearest. `centre` is 128, the value of grey, in the unit of the
// chroma values.
void PortableRow(const RowOf420& row, const Coefficients& c, int width, RgbRow& out) {
  const bool two = row.u[1] != nullptr;
  const int shift = two ? 1 : 2, centre = two ? 1 << 15 : 1 << 14;
  for (int x = 0; x < width; ++x) {
    const auto luma = static_cast<uint32_t>((row.luma[x] - c.black) * c.y * (1 << 9) + (1 << 21));
    const int32_t u = row.u[0][x] + (two ? row.u[1][x] : 0) - centre;
    const int32_t v = row.v[0][x] + (two ? row.v[1][x] : 0) - centre;
    out[0][x] = Byte(luma + (static_cast<uint32_t>(v * c.v_red) << shift));
    out[1][x] = Byte(luma + (static_cast<uint32_t>(v * c.v_green + u * c.u_green) << shift));
    out[2][x] = Byte(luma + (static_cast<uint32_t>(u * c.u_blue) << shift));
  }
}

#ifdef __x86_64__
#define EVENKEEL_AVX2 __attribute__((target("avx2")))

// The same two words in every lane: one factor each for a pair (u, v), as madd multiplies and adds them.
EVENKEEL_AVX2 inline __m256i Pairs(int16_t first, int16_t second) {
  return _mm256_set1_epi32(static_cast<int32_t>(static_cast<uint16_t>(first) |
                                                static_cast<uint32_t>(static_cast<uint16_t>(second)) << 16));
}

EVENKEEL_AVX2 inline __m256i Load(const int16_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

// The inputs of all colours for 16 pixels: luma in 32 bits, and chroma as pairs of words (u, v). Index 0 has
// the pixels that unpacklo selects, index 1 those of unpackhi.
struct Pixels420 {
  __m256i luma[2];
  __m256i uv[2];
};

// One colour of 16 pixels, as words: (luma + ((u * first + v * second) << shift)) >> 22.
EVENKEEL_AVX2 inline __m256i Colour(const Pixels420& pixels, __m256i coefficients, __m128i shift) {
  __m256i sums[2];
  for (int i = 0; i < 2; ++i) {
    const __m256i uv = _mm256_sll_epi32(_mm256_madd_epi16(pixels.uv[i], coefficients), shift);
    sums[i] = _mm256_srai_epi32(_mm256_add_epi32(pixels.luma[i], uv), 22);
  }
  return _mm256_packs_epi32(sums[0], sums[1]);
}

constexpr int kBlock = 32;  // pixels per iteration

// PortableRow for 32 pixels at a time, with the same integers in another order: sums of 32 bits wrap, so
// their order does not matter. Packing takes lanes from both halves in turn; the last permutation restores
// the pixels' order.
EVENKEEL_AVX2 void Avx2Row(const RowOf420& row, const Coefficients& c, int width, RgbRow& out) {
  if (width < kBlock) return PortableRow(row, c, width, out);
  const bool two = row.u[1] != nullptr;
  const __m128i shift = _mm_cvtsi32_si128(two ? 1 : 2);
  const __m256i centre = _mm256_set1_epi16(static_cast<int16_t>(two ? -(1 << 15) : 1 << 14));
  const __m256i black = _mm256_set1_epi16(c.black), zero = _mm256_setzero_si256();
  const __m256i half = _mm256_set1_epi32(1 << 21), y = Pairs(c.y, 0);
  const __m256i colours[3] = {Pairs(0, c.v_red), Pairs(c.u_green, c.v_green), Pairs(c.u_blue, 0)};
  auto load = [&](int x) EVENKEEL_AVX2 {
    __m256i u = Load(row.u[0] + x), v = Load(row.v[0] + x);
    if (two) {
      u = _mm256_add_epi16(u, Load(row.u[1] + x));
      v = _mm256_add_epi16(v, Load(row.v[1] + x));
    }
    u = _mm256_sub_epi16(u, centre);  // modulo 2^16: the difference fits even if the sum overflowed
    v = _mm256_sub_epi16(v, centre);
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row.luma + x));
    const __m256i luma = _mm256_sub_epi16(_mm256_cvtepu8_epi16(bytes), black);
    const __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(luma, zero), y);
    const __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(luma, zero), y);
    return Pixels420{{_mm256_add_epi32(_mm256_slli_epi32(low, 9), half),
                      _mm256_add_epi32(_mm256_slli_epi32(high, 9), half)},
                     {_mm256_unpacklo_epi16(u, v), _mm256_unpackhi_epi16(u, v)}};
  };
  for (int next = 0; next < width; next += kBlock) {
    const int x = std::min(next, width - kBlock);  // the last block may overlap the one before
    const Pixels420 left = load(x), right = load(x + kBlock / 2);
    for (int i = 0; i < 3; ++i) {
      const __m256i bytes =
          _mm256_packus_epi16(Colour(left, colours[i], shift), Colour(right, colours[i], shift));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out[i] + x), _mm256_permute4x64_epi64(bytes, 0xd8));
    }
  }
}
#undef EVENKEEL_AVX2
#else
void Avx2Row(const RowOf420& row, const Coefficients& c, int width, RgbRow& out) {
  PortableRow(row, c, width, out);
}
#endif

// swscale's filters have other positions if a side is odd or tiny.
bool IsPlain420(const AVFrame& frame) {
  return (frame.format == AV_PIX_FMT_YUV420P || frame.format == AV_PIX_FMT_YUVJ420P) &&
         frame.width % 2 == 0 && frame.height % 2 == 0 && frame.width >= 8 && frame.height >= 8;
}

bool Is422(const AVFrame& frame) {
  return frame.format == AV_PIX_FMT_YUV422P || frame.format == AV_PIX_FMT_YUVJ422P;
}

// Formats that swscale converts without its filters (ff_get_unscaled_swscale).
bool HasRepeatedChroma(const AVFrame& frame) {
  return frame.height % 2 == 0 &&
         (Is422(frame) || frame.format == AV_PIX_FMT_YUV420P || frame.format == AV_PIX_FMT_YUVJ420P);
}

// Chroma has luma's size, or there is none: no filter is applied, whatever the loader's flags are.
bool HasFullChroma(const AVFrame& frame) {
  return frame.format == AV_PIX_FMT_YUV444P || frame.format == AV_PIX_FMT_YUVJ444P ||
         frame.format == AV_PIX_FMT_GRAY8;
}

// Formats that swscale treats as full range whatever the frame's range is (handle_jpeg in
// libswscale/utils.c).
bool HasFullRange(int format) {
  return format == AV_PIX_FMT_YUVJ420P || format == AV_PIX_FMT_YUVJ422P || format == AV_PIX_FMT_YUVJ444P ||
         format == AV_PIX_FMT_GRAY8;
}

const uint8_t* RowOf(const AVFrame& frame, int plane, int y) {
  return frame.data[plane] + ptrdiff_t{y} * frame.linesize[plane];
}

// Planar rows of RGB, passed to a sink one band at a time.
class PlanarBands {
 public:
  PlanarBands(const AVFrame& frame, ScratchBytes& memory, BandSink& sink)
      : height_(frame.height),
        // An odd number of cache lines, so that the rows of a band, which are read together, use different
        // cache sets.
        pitch_((static_cast<size_t>(frame.width + kAlignment - 1) / kAlignment * kAlignment) | kAlignment),
        band_(memory.Get(3 * pitch_ * kBandRows)),
        sink_(sink) {}

  // Calls `convert(y, planes)` for each row.
  template <typename Row>
  void ForEachRow(Row convert) {
    for (int y = 0; y < height_; ++y) {
      const uint32_t in_band = static_cast<uint32_t>(y) % kBandRows;
      uint8_t* const red = band_ + 3 * pitch_ * in_band;
      RgbRow out = {red, red + pitch_, red + 2 * pitch_};
      convert(y, out);
      if (in_band + 1 == kBandRows || y + 1 == height_) {
        sink_.TakeBand(PixelBand{{band_, band_ + pitch_, band_ + 2 * pitch_}, 3 * pitch_, in_band + 1, 1});
      }
    }
  }

 private:
  int height_;
  size_t pitch_;
  uint8_t* band_;
  BandSink& sink_;
};

}  // namespace

absl::Status FrameRgb::Convert(const AVFrame& frame, FrameLoader loader, BandSink& sink) {
  const bool full = frame.color_range == AVCOL_RANGE_JPEG || HasFullRange(frame.format);
  const int space =
      frame.colorspace == AVCOL_SPC_UNSPECIFIED ? SWS_CS_DEFAULT : static_cast<int>(frame.colorspace);
  if (path_ == RgbPath::kSwscale) return ConvertBySwscale(frame, loader, space, full, sink);
  if (HasFullChroma(frame)) {
    ConvertFullChroma(frame, space, full, sink);
  } else if (loader == FrameLoader::kAccurate && IsPlain420(frame)) {
    ConvertPlanar420(frame, space, full, sink);
  } else if (loader != FrameLoader::kAccurate && HasRepeatedChroma(frame)) {
    ConvertRepeatedChroma(frame, space, full, sink);
  } else {
    return ConvertBySwscale(frame, loader, space, full, sink);
  }
  return absl::OkStatus();
}

bool FrameRgb::may_use_vectors() const { return path_ == RgbPath::kFastest && MayUseAvx2(); }

void FrameRgb::ForgetLarge() {
  if (padded_.capacity() <= kKeptScratchBytes) return;
  scaler_.reset();
  Emptied(padded_);
}

// 4:2:0 repeats a chroma row for two rows of pixels, 4:2:2 has one for each.
void FrameRgb::ConvertRepeatedChroma(const AVFrame& frame, int space, bool full, BandSink& sink) {
  const RepeatedChroma c = RepeatedChromaOf(sws_getCoefficients(space), full);
  const bool vectors = may_use_vectors();
  const int shift = Is422(frame) ? 0 : 1;
  PlanarBands(frame, band_, sink).ForEachRow([&](int y, RgbRow& out) {
    ConvertRepeated(c, RowOf(frame, 0, y), RowOf(frame, 1, y >> shift), RowOf(frame, 2, y >> shift),
                    frame.width, vectors, out);
  });
}

// Chroma is already at full width and only widened to the unit of WidenChroma(); grey has the centre
// everywhere.
void FrameRgb::ConvertFullChroma(const AVFrame& frame, int space, bool full, BandSink& sink) {
  const int width = frame.width;
  const bool has_chroma = frame.format != AV_PIX_FMT_GRAY8;
  const Coefficients c = CoefficientsOf(space, full);
  const bool vectors = may_use_vectors();
  chroma_.assign(size_t{2} * width, 1 << 14);  // no colour
  int16_t* const u = chroma_.data();
  int16_t* const v = u + width;
  PlanarBands(frame, band_, sink).ForEachRow([&](int y, RgbRow& out) {
    for (int x = 0; has_chroma && x < width; ++x) {
      u[x] = static_cast<int16_t>(RowOf(frame, 1, y)[x] << 7);
      v[x] = static_cast<int16_t>(RowOf(frame, 2, y)[x] << 7);
    }
    const RowOf420 row = {RowOf(frame, 0, y), {u, nullptr}, {v, nullptr}};
    (vectors ? Avx2Row : PortableRow)(row, c, width, out);
  });
}

// Chroma rows are centred between two rows of pixels. swscale's vertical filter at unchanged height has one
// or two taps: it takes a chroma row alone, or the mean of two (the sum here), never the exact 3/4 and 1/4. A
// widened row is used by up to three rows of pixels, so the latest two are kept, in slots by their parity.
void FrameRgb::ConvertPlanar420(const AVFrame& frame, int space, bool full, BandSink& sink) {
  const int width = frame.width, height = frame.height, last = height / 2 - 1;
  const Coefficients c = CoefficientsOf(space, full);
  chroma_.resize(size_t{4} * width);
  const bool vectors = may_use_vectors();
  int held[2] = {-1, -1};  // the chroma rows whose widened u and v are in the two slots
  auto widened = [&](int row) {
    const int slot = row % 2;
    int16_t* u = chroma_.data() + size_t{2} * width * slot;
    if (held[slot] != row) {
      WidenChroma(RowOf(frame, 1, row), width, u);
      WidenChroma(RowOf(frame, 2, row), width, u + width);
      held[slot] = row;
    }
    return u;
  };
  PlanarBands(frame, band_, sink).ForEachRow([&](int y, RgbRow& out) {
    // Odd rows use the nearest chroma row; even rows and the last one use the sum of the two rows around
    // them.
    const int lower = std::min((y + 1) / 2, last);
    const bool two = (y % 2 == 0 && y > 0) || y == height - 1;
    const int16_t* first = widened(two ? lower - 1 : y / 2);
    const int16_t* second = two ? widened(lower) : nullptr;
    const RowOf420 row = {
        RowOf(frame, 0, y), {first, second}, {first + width, two ? second + width : nullptr}};
    (vectors ? Avx2Row : PortableRow)(row, c, width, out);
  });
}

void FrameRgb::ScalerFree::operator()(SwsContext* scaler) const { sws_freeContext(scaler); }

absl::Status FrameRgb::PrepareScaler(const AVFrame& frame, FrameLoader loader, int space, bool full) {
  const int flags = ScalerFlags(loader);
  if (scaler_ != nullptr && frame.width == width_ && frame.height == height_ && frame.format == format_ &&
      full == full_ && space == space_ && flags == flags_) {
    return absl::OkStatus();
  }
  scaler_.reset(sws_getContext(frame.width, frame.height, static_cast<AVPixelFormat>(frame.format),
                               frame.width, frame.height, AV_PIX_FMT_RGB24, flags, nullptr, nullptr,
                               nullptr));
  if (scaler_ == nullptr)
    return absl::UnimplementedError(
        absl::StrCat("pixel format ", frame.format, " cannot be converted by libswscale"));
  sws_setColorspaceDetails(scaler_.get(), sws_getCoefficients(space), full,
                           sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16);
  // The scaler writes whole vectors past the end of a row, so rows and the buffer are padded.
  stride_ = (3 * frame.width + 2 * kAlignment - 1) / kAlignment * kAlignment;
  padded_.assign(static_cast<size_t>(stride_) * (frame.height + 1) + kAlignment, 0);
  offset_ = (kAlignment - reinterpret_cast<uintptr_t>(padded_.data()) % kAlignment) % kAlignment;
  width_ = frame.width;
  height_ = frame.height;
  format_ = frame.format;
  full_ = full;
  space_ = space;
  flags_ = flags;
  return absl::OkStatus();
}

absl::Status FrameRgb::ConvertBySwscale(const AVFrame& frame, FrameLoader loader, int space, bool full,
                                        BandSink& sink) {
  EVENKEEL_RETURN_IF_ERROR(PrepareScaler(frame, loader, space, full));
  uint8_t* planes[4] = {padded_.data() + offset_, nullptr, nullptr, nullptr};
  int strides[4] = {stride_, 0, 0, 0};
  if (sws_scale(scaler_.get(), frame.data, frame.linesize, 0, frame.height, planes, strides) !=
      frame.height) {
    return absl::DataLossError("libswscale failed to convert a frame to RGB");
  }
  sink.TakeBand(planes[0], static_cast<size_t>(stride_), static_cast<uint32_t>(frame.height));
  return absl::OkStatus();
}

}  // namespace evenkeel::preprocess
