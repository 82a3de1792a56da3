// Stores a picture as planes and reads it back in the order of its orientation, in blocks that use whole
// cache lines.
#include "preprocess/image/turned_picture.h"

#include <algorithm>
#include <cstring>

#ifdef __x86_64__
#include <emmintrin.h>
#endif

#include "preprocess/resize/resize_kernels.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kBlock = 16;  // side of a block, in pixels
// as many as a cache line has bytes, so that every line is read once
constexpr uint32_t kTurnedRows = 4 * kBandRows;
constexpr uint32_t kAheadRows = 3 * kBlock;  // distance of the prefetch, in rows
constexpr size_t kLine = 64;                 // bytes of a cache line
static_assert(kTurnedRows == kLine && kTurnedRows % kBlock == 0);

// Rows are an odd number of cache lines apart: many of them are accessed together and must not fall into the
// same cache set.
constexpr size_t StrideOf(uint32_t width) { return ((width + kLine - 1) / kLine * kLine) | kLine; }

// Transposes a block: column i of the block whose rows begin at `rows` becomes row i of `out`.
void TransposeBlock(const uint8_t* const (&rows)[kBlock], uint8_t* const (&out)[kBlock]) {
#ifdef __x86_64__
  // Each of the four rounds moves one bit of the row number into the column number.
  __m128i a[kBlock], b[kBlock];
  for (uint32_t i = 0; i < kBlock; ++i) a[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[i]));
  for (int round = 0; round < 4; ++round) {
    for (uint32_t i = 0; i < kBlock / 2; ++i) {
      b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + kBlock / 2]);
      b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + kBlock / 2]);
    }
    std::copy(std::begin(b), std::end(b), std::begin(a));
  }
  for (uint32_t i = 0; i < kBlock; ++i) _mm_storeu_si128(reinterpret_cast<__m128i*>(out[i]), a[i]);
#else
  for (uint32_t i = 0; i < kBlock; ++i) {
    for (uint32_t k = 0; k < kBlock; ++k) out[i][k] = rows[k][i];
  }
#endif
}

// Copies the `width` pixels that end at `last` in reverse order.
void ReverseRow(const uint8_t* last, uint32_t width, uint8_t* out) {
  uint32_t x = 0;
#ifdef __x86_64__
  for (; x + kBlock <= width; x += kBlock) {
    __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(last - x - (kBlock - 1)));
    // Swaps the bytes of each word, then the words of each half, then the halves.
    v = _mm_or_si128(_mm_slli_epi16(v, 8), _mm_srli_epi16(v, 8));
    v = _mm_shufflehi_epi16(_mm_shufflelo_epi16(v, 0x1b), 0x1b);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x), _mm_shuffle_epi32(v, 0x4e));
  }
#endif
  for (; x < width; ++x) out[x] = *(last - x);
}

// A plane of the turned picture: its first pixel in memory, and the steps to the next pixel along a row and
// along a column.
struct Walk {
  const uint8_t* first;
  ptrdiff_t x;
  ptrdiff_t y;
};
// `count` rows of `width` pixels, `stride` bytes apart. Blocks may write beyond both.
struct TurnedRows {
  uint8_t* out;
  size_t stride;
  uint32_t width;
  uint32_t count;
};

// For orientations whose rows are rows of the file.
void CopyRows(const Walk& walk, const TurnedRows& rows) {
  for (uint32_t r = 0; r < rows.count; ++r) {
    const uint8_t* from = walk.first + walk.y * r;
    uint8_t* to = rows.out + rows.stride * r;
    if (walk.x == 1) std::memcpy(to, from, rows.width);
    if (walk.x == -1) ReverseRow(from, rows.width, to);
  }
}

// For orientations whose rows are columns of the file.
void TurnRows(const Walk& walk, const TurnedRows& rows) {
  // Beyond the last row of the file it is read again; the result is not used.
  auto row_at = [&](uint32_t x) { return walk.first + walk.x * std::min(x, rows.width - 1); };
  const bool upwards = walk.y < 0;
  for (uint32_t x = 0; x < rows.width; x += kBlock) {
    // Each row is on another page: more streams than a prefetcher follows.
    for (uint32_t i = 0; i < kBlock; ++i) {
      __builtin_prefetch(row_at(x + kAheadRows + i) + walk.y * (rows.count / 2));
    }
    for (uint32_t r = 0; r < rows.count; r += kBlock) {
      const uint8_t* in[kBlock];
      uint8_t* out[kBlock];
      for (uint32_t i = 0; i < kBlock; ++i) {
        // Blocks are read in file order. If the turned picture counts columns from the right, its rows are
        // written from the bottom.
        in[i] = row_at(x + i) + walk.y * r - (upwards ? kBlock - 1 : 0);
        out[i] = rows.out + rows.stride * (r + (upwards ? kBlock - 1 - i : i)) + x;
      }
      TransposeBlock(in, out);
    }
  }
}

}  // namespace

uint32_t OrientationOf(uint32_t degrees) {
  return degrees == 90 ? 6 : degrees == 180 ? 3 : degrees == 270 ? 8 : 1;
}

void TurnedPicture::Start(ImageSize size) {
  size_ = size, taken_ = 0;
  stride_ = StrideOf(size.width);
  plane_ = stride_ * size.height;
  // room for blocks that reach beyond the picture
  stored_ = stored_memory_.Get(3 * plane_ + 2 * kLine) + kLine;
}

void TurnedPicture::TakeBand(const PixelBand& band) {
  static const ResizeKernels& kernels = ResizeKernelsOf(ResizePath::kBest);
  for (uint32_t r = 0; r < band.rows; ++r, ++taken_) {
    PixelBand row = band.From(r, 1);
    if (band.interleaved()) {
      uint8_t* const planes = rows_memory_.Get(size_t{3} * size_.width);
      kernels.split_planes(row.plane[0], size_.width, planes);
      for (size_t c = 0; c < 3; ++c) row.plane[c] = planes + c * size_.width;
    }
    for (size_t c = 0; c < 3; ++c) {
      std::memcpy(stored_ + plane_ * c + stride_ * taken_, row.plane[c], size_.width);
    }
  }
}

void TurnedPicture::Deliver(uint32_t orientation, BandSink& sink) {
  const bool turns = Turns(orientation);
  const uint32_t width = turns ? size_.height : size_.width, height = turns ? size_.width : size_.height;
  // For each orientation: offset of the first pixel, then the steps to the next pixel in x and in y.
  const ptrdiff_t down = static_cast<ptrdiff_t>(stride_);
  const ptrdiff_t last_x = size_.width - 1, last_y = down * (size_.height - 1);
  const struct {
    ptrdiff_t first, x, y;
  } steps_of[] = {{0, 1, down}, {last_x, -1, down}, {last_x + last_y, -1, -down}, {last_y, 1, -down},
                  {0, down, 1}, {last_y, -down, 1}, {last_x + last_y, -down, -1}, {last_x, down, -1}};
  const auto& step = steps_of[orientation - 1];
  const size_t pitch = StrideOf(width), stride = 3 * pitch;
  uint8_t* const band = rows_memory_.Get(stride * kTurnedRows);
  for (uint32_t y = 0; y < height; y += kTurnedRows) {
    const uint32_t count = std::min(kTurnedRows, height - y);
    for (size_t c = 0; c < 3; ++c) {
      const Walk walk = {stored_ + plane_ * c + step.first + step.y * y, step.x, step.y};
      (turns ? TurnRows : CopyRows)(walk, {band + pitch * c, stride, width, count});
    }
    sink.TakeBand(PixelBand{{band, band + pitch, band + 2 * pitch}, stride, count, 1});
  }
}

}  // namespace evenkeel::preprocess
