// Computes M-RoPE positions: text counts up, grids get a position per axis.
#include "preprocess/text/positions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace evenkeel::preprocess {
namespace {

struct Rows {
  std::span<int64_t> t, h, w;

  void Text(uint64_t begin, uint64_t end, int64_t first) const {
    for (uint64_t i = begin; i < end; ++i) t[i] = h[i] = w[i] = first + static_cast<int64_t>(i - begin);
  }
};

// The position of grid `t` relative to the item's first one. Products and truncation are in single precision
// and in the order in which torch computes them, since another order gives other integers. Images have no
// extent in time.
int64_t TimeOf(const GridSpan& span, uint32_t t, uint32_t tokens_per_second, bool seconds_first) {
  if (tokens_per_second == 0 || span.medium != Medium::kVideo) return t;
  const auto per_second = static_cast<float>(tokens_per_second);
  const float seconds = span.grid.second_per_grid;
  return static_cast<int64_t>(seconds_first ? static_cast<float>(t) * seconds * per_second
                                            : static_cast<float>(t) * (per_second * seconds));
}

}  // namespace

absl::StatusOr<uint64_t> MergedTokens(const VisionGrid& grid, uint32_t merge_size) {
  if (merge_size == 0 || grid.h % merge_size != 0 || grid.w % merge_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("grid of ", grid.t, "x", grid.h, "x", grid.w,
                                                   " patches; height and width must be multiples of ",
                                                   merge_size));
  }
  return uint64_t{grid.t} * (grid.h / merge_size) * (grid.w / merge_size);
}

void WritePositions(std::span<const GridSpan> spans, uint32_t merge_size, uint32_t tokens_per_second,
                    std::span<int64_t> positions, bool after_time) {
  uint64_t length = positions.size() / 3;
  Rows rows{positions.subspan(0, length), positions.subspan(length, length),
            positions.subspan(2 * length, length)};
  uint64_t token = 0;
  int64_t next = 0;
  // For each grid: first the text before it, then its patches in row-major order per time step.
  for (const GridSpan& span : spans) {
    rows.Text(token, span.begin, next);
    next += static_cast<int64_t>(span.begin - token);
    token = span.begin;
    uint32_t height = span.grid.h / merge_size;
    uint32_t width = span.grid.w / merge_size;
    int64_t extent = std::max(height, width);
    for (uint32_t t = 0; t < span.grid.t; ++t) {
      const int64_t after = TimeOf(span, t, tokens_per_second, after_time);
      if (after_time) extent = std::max(extent, after + 1);
      const int64_t time = next + after;
      for (uint32_t y = 0; y < height; ++y) {
        for (uint32_t x = 0; x < width; ++x, ++token) {
          rows.t[token] = time;
          rows.h[token] = next + y;
          rows.w[token] = next + x;
        }
      }
    }
    next += extent;
  }
  rows.Text(token, length, next);
}

}  // namespace evenkeel::preprocess
