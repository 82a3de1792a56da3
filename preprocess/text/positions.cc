// Computes M-RoPE positions: text counts up, grids get a position per axis.
#include "preprocess/text/positions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace evenkeel::preprocess {
namespace {

// The position of grid `t` relative to the item's first one. Products and truncation are in single precision
// and in the order in which torch computes them, since another order gives other integers. Images have no
// extent in time.
int64_t TimeOf(const GridSpan& span, uint32_t t, const PositionRules& rules) {
  if (rules.tokens_per_second == 0 || span.medium != Medium::kVideo) return t;
  const auto per_second = static_cast<float>(rules.tokens_per_second);
  const float seconds = span.grid.second_per_grid;
  return static_cast<int64_t>(rules.after_time ? static_cast<float>(t) * seconds * per_second
                                               : static_cast<float>(t) * (per_second * seconds));
}

// Writes positions from the first token to the last.
class PositionWriter {
 public:
  PositionWriter(const PositionRules& rules, std::span<int64_t> positions)
      : rules_(rules),
        length_(positions.size() / 3),
        t_(positions.subspan(0, length_)),
        h_(positions.subspan(length_, length_)),
        w_(positions.subspan(2 * length_, length_)) {}

  // Text, which counts up, to token `end`.
  void Text(uint64_t end) {
    while (token_ < end) Put(next_, next_, next_), ++next_;
  }
  void TextToEnd() { Text(length_); }

  // The patches of a grid in row-major order per time step.
  void Grid(const GridSpan& span) {
    const uint32_t height = span.grid.h / rules_.merge_size, width = span.grid.w / rules_.merge_size;
    int64_t extent = std::max(height, width);
    for (uint32_t t = 0; t < span.grid.t; ++t) {
      const int64_t after = TimeOf(span, t, rules_);
      if (rules_.after_time) extent = std::max(extent, after + 1);
      for (uint32_t y = 0; y < height; ++y) {
        for (uint32_t x = 0; x < width; ++x) Put(next_ + after, next_ + y, next_ + x);
      }
    }
    next_ += extent;
  }

  void GridWithAudio(const GridSpan& span) {
    const bool shares = rules_.shares_end_positions && token_ >= 2;
    if (shares) {  // the token before the first one repeats the position before its own
      --next_;
      t_[token_ - 1] = h_[token_ - 1] = w_[token_ - 1] = next_ - 1;
    }
    const uint32_t height = span.grid.h / rules_.merge_size, width = span.grid.w / rules_.merge_size;
    const uint64_t grid_tokens = uint64_t{height} * width;
    uint64_t video = 0;
    int64_t audio = 0;
    for (const AlternatingRun& run : span.runs) {
      for (uint64_t i = 0; i < run.tokens; ++i) {
        if (run.is_audio) {
          Put(next_ + audio, next_ + audio, next_ + audio);
          ++audio;
          continue;
        }
        const int64_t time = TimeOf(span, static_cast<uint32_t>(video / grid_tokens), rules_);
        const auto in_grid = static_cast<int64_t>(video % grid_tokens);
        Put(next_ + time, next_ + in_grid / width, next_ + in_grid % width);
        ++video;
      }
    }
    const uint64_t last = token_ - 1;
    next_ = std::max({t_[last], h_[last], w_[last]}) + 1;
    if (rules_.shares_end_positions && token_ < length_) Put(next_, next_, next_);  // next_ stays
  }

 private:
  void Put(int64_t t, int64_t h, int64_t w) {
    t_[token_] = t;
    h_[token_] = h;
    w_[token_] = w;
    ++token_;
  }

  const PositionRules& rules_;
  const uint64_t length_;
  const std::span<int64_t> t_, h_, w_;
  uint64_t token_ = 0;  // the next one to write
  int64_t next_ = 0;    // the position of the next text
};

}  // namespace

absl::StatusOr<uint64_t> MergedTokens(const VisionGrid& grid, uint32_t merge_size) {
  if (merge_size == 0 || grid.h % merge_size != 0 || grid.w % merge_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("grid of ", grid.t, "x", grid.h, "x", grid.w,
                                                   " patches; height and width must be multiples of ",
                                                   merge_size));
  }
  return uint64_t{grid.t} * (grid.h / merge_size) * (grid.w / merge_size);
}

void WritePositions(std::span<const GridSpan> spans, const PositionRules& rules,
                    std::span<int64_t> positions) {
  PositionWriter writer(rules, positions);
  for (const GridSpan& span : spans) {
    writer.Text(span.begin);
    span.runs.empty() ? writer.Grid(span) : writer.GridWithAudio(span);
  }
  writer.TextToEnd();
}

}  // namespace evenkeel::preprocess
