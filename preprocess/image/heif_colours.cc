// Converts Y, Cb and Cr as libavif 1.4 with libyuv does (reformat.c, reformat_libyuv.c; libyuv's row_common.cc and
// scale_any.cc), and as libheif 1.23 does (color-conversion/yuv2rgb.cc). libyuv's code for each processor gives what
// its portable code gives; here is that alone.
#include "preprocess/image/heif_colours.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::preprocess {
namespace {

// Matrix coefficients and primaries of ITU-T H.273.
constexpr uint16_t kIdentity = 0, kBt709 = 1, kFcc = 4, kBt470Bg = 5, kBt601 = 6, kSmpte240 = 7, kYCgCo = 8,
                   kBt2020 = 9, kDerived = 12;

constexpr uint8_t kOpaque = 255;

absl::Status Unsupported(absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat("HEIF: ", what, " is not supported"));
}

uint8_t Clamped(int32_t value) { return static_cast<uint8_t>(std::clamp(value, 0, 255)); }

// Where the matrix follows from the primaries, the one that it stands for.
uint16_t MatrixOf(const CodedColours& colours) {
  if (colours.matrix != kDerived) return colours.matrix;
  switch (colours.primaries) {
    case 1:
    case CodedColours::kUnspecified:
      return kBt709;
    case 5:
    case 6:
      return kBt601;
    case 9:
      return kBt2020;
    default:
      return kDerived;
  }
}

// libyuv's numbers of a matrix, in its order: y, bias, u of blue, u and v of green, v of red.
std::optional<std::array<int32_t, 6>> ScaledOf(uint16_t matrix, bool full_range) {
  constexpr int32_t kFull = 16320, kHalf = 32, kLimited = 18997, kBlack = -1160;
  switch (matrix) {
    case kBt709:
      if (full_range) return {{kFull, kHalf, 119, 12, 30, 101}};
      return {{kLimited, kBlack, 128, 14, 34, 115}};
    case kBt470Bg:
    case kBt601:
    case CodedColours::kUnspecified:
      if (full_range) return {{kFull, kHalf, 113, 22, 46, 90}};
      return {{kLimited, kBlack, 128, 25, 52, 102}};
    case kBt2020:
      if (full_range) return {{kFull, kHalf, 120, 11, 37, 94}};
      return {{19003, kBlack, 128, 12, 42, 107}};
    default:
      return std::nullopt;
  }
}

struct Weights {
  float red = 0, blue = 0;
};
// The parts of red and blue in Y.
std::optional<Weights> WeightsOf(uint16_t matrix) {
  switch (matrix) {
    case kBt709:
      return Weights{0.2126f, 0.0722f};
    case kFcc:
      return Weights{0.30f, 0.11f};
    case kBt470Bg:
    case kBt601:
      return Weights{0.299f, 0.114f};
    case kSmpte240:
      return Weights{0.212f, 0.087f};
    case kBt2020:
      return Weights{0.2627f, 0.0593f};
    default:
      return std::nullopt;
  }
}

// libyuv's doubling of a row: three parts of the nearer sample and one of the other, rounded. The first and the last
// pixel have the nearest sample's value.
void DoubleRow(const uint16_t* in, uint32_t width, uint16_t* out) {
  out[0] = in[0];
  for (uint32_t x = 1; x + 1 < width; ++x) {
    const uint32_t i = (x - 1) / 2;
    const uint32_t near = x % 2 == 1 ? in[i] : in[i + 1], far = x % 2 == 1 ? in[i + 1] : in[i];
    out[x] = static_cast<uint16_t>((3 * near + far + 2) >> 2);
  }
  out[width - 1] = in[(width - 1) / 2];
}

// The same between two rows, of which `near` has three parts.
void DoubleRows(const uint16_t* near, const uint16_t* far, uint32_t width, uint16_t* out) {
  const auto edge = [&](uint32_t i) { return static_cast<uint16_t>((3 * near[i] + far[i] + 2) >> 2); };
  out[0] = edge(0);
  for (uint32_t x = 1; x + 1 < width; ++x) {
    const uint32_t left = (x - 1) / 2, right = left + 1;
    const uint32_t a = x % 2 == 1 ? left : right, b = x % 2 == 1 ? right : left;
    out[x] = static_cast<uint16_t>((9 * near[a] + 3 * near[b] + 3 * far[a] + far[b] + 8) >> 4);
  }
  out[width - 1] = edge((width - 1) / 2);
}

// libheif's conversion to a whole number of `depth` bits, of which the high ones are kept.
uint8_t HighBits(float value, uint32_t depth) {
  const int32_t most = (1 << depth) - 1;
  return static_cast<uint8_t>(std::clamp(static_cast<int32_t>(value + 0.5f), 0, most) >> (depth - 8));
}

}  // namespace

HeifRows::HeifRows(const CodedPlanes& planes, HeifCodec codec)
    : planes_(planes), codec_(codec), depth_(planes.depth) {
  const uint32_t width = planes.size.width;
  for (std::vector<uint16_t>* row : {&y_, &u_, &v_, &near_, &far_}) row->resize(width);
}

absl::StatusOr<HeifRows> HeifRows::Make(const CodedPlanes& planes, HeifCodec codec) {
  HeifRows rows(planes, codec);
  EVENKEEL_RETURN_IF_ERROR(codec == HeifCodec::kAv1 ? rows.ChooseForAvif() : rows.ChooseForHeif());
  return rows;
}

// libavif lets libyuv convert what it can. Samples of more than 8 bits lose their low ones before, except
// with an alpha, for which libyuv has functions of its own.
absl::Status HeifRows::ChooseForAvif() {
  const bool alpha = planes_.alpha.first != nullptr;
  const uint16_t matrix = MatrixOf(planes_.colours);
  std::optional<std::array<int32_t, 6>> scaled =
      ScaledOf(planes_.grey && matrix == kIdentity ? kBt601 : matrix, planes_.colours.full_range);
  if (planes_.grey && !alpha) scaled.reset();
  if (scaled) {
    method_ = Method::kScaled, scaled_ = *scaled;
    const bool quartered = planes_.half_width && planes_.half_height;
    const bool wide = alpha && !planes_.grey && (depth_ == 10 || (depth_ == 12 && quartered));
    nearest_ = wide && depth_ == 12;
    if (!wide) shift_ = depth_ - 8, depth_ = 8;
    return absl::OkStatus();
  }
  method_ = Method::kFloats;
  if (planes_.grey) return absl::OkStatus();
  if (matrix == kIdentity) {
    if (planes_.half_width) return Unsupported("the identity matrix with fewer samples of colour");
    return absl::OkStatus();
  }
  if (matrix == kYCgCo) {
    return planes_.colours.full_range ? absl::OkStatus() : Unsupported("YCgCo of limited range");
  }
  const std::optional<Weights> weights = WeightsOf(matrix);
  if (!weights) return Unsupported(absl::StrCat("matrix ", planes_.colours.matrix, " of colours"));
  floats_ = {weights->red, 1.0f - weights->red - weights->blue, weights->blue, 0};
  return absl::OkStatus();
}

// libheif takes the way of the fewest steps: more than 8 bits lose their low ones first if 4:2:0 of full range
// follows, for which it has integers, and last otherwise.
absl::Status HeifRows::ChooseForHeif() {
  nearest_ = true;
  if (planes_.grey) {
    shift_ = depth_ - 8, depth_ = 8;
    return absl::OkStatus();
  }
  const uint16_t matrix = planes_.colours.matrix;
  method_ = Method::kHeifFloats;
  if (matrix == kIdentity && planes_.colours.full_range) return absl::OkStatus();
  const std::optional<Weights> weights = WeightsOf(matrix);
  if (!weights && matrix != CodedColours::kUnspecified)
    return Unsupported(absl::StrCat("matrix ", planes_.colours.matrix, " of colours"));
  floats_ = {1.402f, -0.344136f, -0.714136f, 1.772f};
  if (weights) {
    const auto [red, blue] = *weights;
    const float rest = blue + red - 1;
    floats_ = {2 * (-red + 1), 2 * blue * (-blue + 1) / rest, 2 * red * (-red + 1) / rest, 2 * (-blue + 1)};
  }
  if (!planes_.half_height || !planes_.colours.full_range) return absl::OkStatus();
  method_ = Method::kRounded;
  shift_ = depth_ - 8, depth_ = 8;
  for (size_t i = 0; i < floats_.size(); ++i) {
    // To nearest; none is a half.
    const float wide = 256 * floats_[i];
    rounded_[i] = static_cast<int32_t>(wide < 0 ? wide - 0.5f : wide + 0.5f);
  }
  return absl::OkStatus();
}

void HeifRows::ReadRow(const CodedPlane& plane, uint32_t width, uint32_t y, uint16_t* out) const {
  const uint8_t* const row = plane.first + plane.stride * y;
  if (planes_.depth == 8) {
    std::copy(row, row + width, out);
    return;
  }
  // Decoders keep to the depth; a sample beyond it would be one of the highest value.
  const auto most = static_cast<uint16_t>((1u << planes_.depth) - 1);
  for (uint32_t x = 0; x < width; ++x) {
    uint16_t wide = 0;
    std::memcpy(&wide, row + sizeof(wide) * x, sizeof(wide));
    out[x] = static_cast<uint16_t>(std::min(wide, most) >> shift_);
  }
}

void HeifRows::ReadNearestChroma(const CodedPlane& plane, uint32_t y, std::vector<uint16_t>& out) {
  const uint32_t width = planes_.size.width, row = planes_.half_height ? y / 2 : y;
  if (!planes_.half_width) return ReadRow(plane, width, row, out.data());
  ReadRow(plane, (width + 1) / 2, row, near_.data());
  for (uint32_t x = 0; x < width; ++x) out[x] = near_[x / 2];
}

void HeifRows::ReadChroma(const CodedPlane& plane, uint32_t y, std::vector<uint16_t>& out) {
  const uint32_t width = planes_.size.width, height = planes_.size.height;
  if (nearest_ || !planes_.half_width) return ReadNearestChroma(plane, y, out);
  const uint32_t half = (width + 1) / 2;
  const uint32_t row = planes_.half_height ? y / 2 : y;
  ReadRow(plane, half, row, near_.data());
  // Row 0 and a last odd one have no other row of chroma on their other side.
  const bool alone = !planes_.half_height || y == 0 || (y % 2 == 1 && y + 1 == height);
  if (alone) return DoubleRow(near_.data(), width, out.data());
  ReadRow(plane, half, y % 2 == 1 ? row + 1 : row - 1, far_.data());
  DoubleRows(near_.data(), far_.data(), width, out.data());
}

// libavif's own doubling: 9, 3, 3 and 1 sixteenths of the four nearest samples, which repeat at the edges.
void HeifRows::ReadFloatChroma(const CodedPlane& plane, uint32_t y, std::vector<float>& out) {
  const uint32_t width = planes_.size.width, height = planes_.size.height;
  const float bias = static_cast<float>(1u << (depth_ - 1));
  const bool full = planes_.colours.full_range, identity = planes_.colours.matrix == kIdentity;
  const float range = full ? static_cast<float>((1u << depth_) - 1)
                           : static_cast<float>((identity ? 219u : 224u) << (depth_ - 8));
  const float zero = !identity ? bias : full ? 0.0f : static_cast<float>(16u << (depth_ - 8));
  const auto value = [&](uint16_t sample) { return (static_cast<float>(sample) - zero) / range; };
  const uint32_t samples = planes_.half_width ? (width + 1) / 2 : width;
  const uint32_t row = planes_.half_height ? y / 2 : y;
  ReadRow(plane, samples, row, near_.data());
  if (!planes_.half_width) {
    for (uint32_t x = 0; x < width; ++x) out[x] = value(near_[x]);
    return;
  }
  const bool alone = !planes_.half_height || y == 0 || (y % 2 == 1 && y + 1 == height);
  ReadRow(plane, samples, alone ? row : y % 2 == 1 ? row + 1 : row - 1, far_.data());
  for (uint32_t x = 0; x < width; ++x) {
    const bool edge = x == 0 || (x % 2 == 1 && x + 1 == width);
    const uint32_t a = x / 2, b = edge ? a : x % 2 == 1 ? a + 1 : a - 1;
    out[x] = value(near_[a]) * (9.0f / 16.0f) + value(near_[b]) * (3.0f / 16.0f) +
             value(far_[a]) * (3.0f / 16.0f) + value(far_[b]) * (1.0f / 16.0f);
  }
}

void HeifRows::ScaledRow(uint8_t* rgba) const {
  const auto [y_scale, bias, u_blue, u_green, v_green, v_red] = scaled_;
  for (size_t x = 0; x < y_.size(); ++x, rgba += 4) {
    // Y with all 16 bits, repeated from its high ones.
    const uint32_t y = y_[x];
    const uint32_t wide = depth_ == 8 ? y * 0x101 : y << (16 - depth_) | y >> (2 * depth_ - 16);
    const int32_t luma = static_cast<int32_t>(wide * static_cast<uint32_t>(y_scale) >> 16) + bias;
    const int32_t u = std::min(u_[x] >> (depth_ - 8), 255) - 128,
                  v = std::min(v_[x] >> (depth_ - 8), 255) - 128;
    rgba[0] = Clamped((luma + v * v_red) >> 6);
    rgba[1] = Clamped((luma - (u * u_green + v * v_green)) >> 6);
    rgba[2] = Clamped((luma + u * u_blue) >> 6);
  }
}

void HeifRows::FloatRow(uint32_t y, uint8_t* rgba) {
  const bool full = planes_.colours.full_range, identity = planes_.colours.matrix == kIdentity;
  const float zero = full ? 0.0f : static_cast<float>(16u << (depth_ - 8));
  const float range =
      full ? static_cast<float>((1u << depth_) - 1) : static_cast<float>(219u << (depth_ - 8));
  if (!planes_.grey) {
    cb_.resize(y_.size()), cr_.resize(y_.size());
    ReadFloatChroma(planes_.yuv[1], y, cb_);
    ReadFloatChroma(planes_.yuv[2], y, cr_);
  }
  const auto byte = [](float value) {
    return static_cast<uint8_t>(0.5f + std::clamp(value, 0.0f, 1.0f) * 255.0f);
  };
  const auto [kr, kg, kb, unused] = floats_;
  for (size_t x = 0; x < y_.size(); ++x, rgba += 4) {
    const float luma = (static_cast<float>(y_[x]) - zero) / range;
    float red = luma, green = luma, blue = luma;
    if (!planes_.grey) {
      const float cb = cb_[x], cr = cr_[x];
      if (identity) {
        blue = cb, red = cr;
      } else if (planes_.colours.matrix == kYCgCo) {
        const float rest = luma - cb;
        green = luma + cb, blue = rest - cr, red = rest + cr;
      } else {
        red = luma + (2 * (1 - kr)) * cr;
        blue = luma + (2 * (1 - kb)) * cb;
        green = luma - ((2 * ((kr * (1 - kr) * cr) + (kb * (1 - kb) * cb))) / kg);
      }
    }
    rgba[0] = byte(red), rgba[1] = byte(green), rgba[2] = byte(blue);
  }
}

void HeifRows::RoundedRow(uint8_t* rgba) const {
  const auto [v_red, u_green, v_green, u_blue] = rounded_;
  for (size_t x = 0; x < y_.size(); ++x, rgba += 4) {
    const int32_t y = y_[x], u = u_[x] - 128, v = v_[x] - 128;
    rgba[0] = Clamped(y + ((v_red * v + 128) >> 8));
    rgba[1] = Clamped(y + ((u_green * u + v_green * v + 128) >> 8));
    rgba[2] = Clamped(y + ((u_blue * u + 128) >> 8));
  }
}

void HeifRows::HeifFloatRow(uint8_t* rgba) const {
  const auto [v_red, u_green, v_green, u_blue] = floats_;
  const bool full = planes_.colours.full_range, identity = planes_.colours.matrix == kIdentity;
  const int32_t half = 1 << (depth_ - 1);
  const float black = static_cast<float>(16u << (depth_ - 8));
  for (size_t x = 0; x < y_.size(); ++x, rgba += 4) {
    if (identity) {
      const uint16_t* const rows[] = {v_.data(), y_.data(), u_.data()};
      for (size_t c = 0; c < 3; ++c) rgba[c] = static_cast<uint8_t>(rows[c][x] >> (depth_ - 8));
      continue;
    }
    float y = y_[x], u = static_cast<float>(u_[x] - half), v = static_cast<float>(v_[x] - half);
    if (!full) y = (y - black) * 1.1689f, u = u * 1.1429f, v = v * 1.1429f;
    rgba[0] = HighBits(y + v_red * v, depth_);
    rgba[1] = HighBits(y + u_green * u + v_green * v, depth_);
    rgba[2] = HighBits(y + u_blue * u, depth_);
  }
}

// libyuv drops low bits of the alpha where it converts it with the colours; libavif rounds.
void HeifRows::AlphaRow(uint32_t y, uint8_t* rgba) {
  if (planes_.alpha.first == nullptr) {
    for (size_t x = 0; x < y_.size(); ++x) rgba[4 * x + 3] = kOpaque;
    return;
  }
  const uint32_t dropped = shift_;
  shift_ = 0;
  ReadRow(planes_.alpha, planes_.size.width, y, near_.data());
  shift_ = dropped;
  const uint32_t depth = planes_.depth, most = (1u << depth) - 1;
  const uint32_t black = 16u << (depth - 8), white = 235u << (depth - 8);
  const bool rounds =
      codec_ == HeifCodec::kAv1 && depth > 8 && (planes_.grey || nearest_ || method_ != Method::kScaled);
  for (size_t x = 0; x < y_.size(); ++x) {
    uint32_t alpha = near_[x];
    // libavif's widening of limited range, rounded to nearest.
    if (!planes_.alpha_full_range && codec_ == HeifCodec::kAv1) {
      const uint32_t part = alpha < black ? 0 : alpha - black;
      alpha = std::min((part * most + (white - black) / 2) / (white - black), most);
    }
    if (rounds) {
      const float part = static_cast<float>(alpha) / static_cast<float>(most);
      rgba[4 * x + 3] = static_cast<uint8_t>(0.5f + std::clamp(part * 255.0f, 0.0f, 255.0f));
    } else {
      rgba[4 * x + 3] = static_cast<uint8_t>(alpha >> (depth - 8));
    }
  }
}

void HeifRows::ToRgba(uint32_t y, uint8_t* rgba) {
  ReadRow(planes_.yuv[0], planes_.size.width, y, y_.data());
  if (planes_.grey) {
    // Chroma of no colour.
    for (std::vector<uint16_t>* row : {&u_, &v_})
      std::fill(row->begin(), row->end(), static_cast<uint16_t>(1u << (depth_ - 1)));
  } else if (method_ != Method::kFloats) {
    ReadChroma(planes_.yuv[1], y, u_);
    ReadChroma(planes_.yuv[2], y, v_);
  }
  switch (method_) {
    case Method::kGrey:
      for (size_t x = 0; x < y_.size(); ++x) std::memset(rgba + 4 * x, static_cast<uint8_t>(y_[x]), 3);
      break;
    case Method::kScaled:
      ScaledRow(rgba);
      break;
    case Method::kFloats:
      FloatRow(y, rgba);
      break;
    case Method::kRounded:
      RoundedRow(rgba);
      break;
    case Method::kHeifFloats:
      HeifFloatRow(rgba);
      break;
  }
  AlphaRow(y, rgba);
}

}  // namespace evenkeel::preprocess
