// Interleaves the placeholders of a video and of its audio by chunks, or by time.
#include "preprocess/families/audio_in_video.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "absl/strings/str_cat.h"

namespace evenkeel::preprocess {
namespace {

// Adds runs to a list; neighbours of one kind become one run.
class Runs {
 public:
  Runs(const VisionGrid& grid, std::vector<PlaceholderRun>& runs)
      : grid_(grid), runs_(runs), first_(runs.size()) {}

  void Add(PlaceholderRun::Of of, uint64_t rows) {
    if (rows == 0) return;
    const bool is_first = runs_.size() == first_;
    if (is_first || runs_.back().of != of) runs_.push_back({.of = of});
    if (is_first) runs_.back().grid = grid_;
    runs_.back().rows += static_cast<uint32_t>(rows);
  }

 private:
  const VisionGrid& grid_;
  std::vector<PlaceholderRun>& runs_;
  const size_t first_;
};

// The numbers of placeholders in each chunk of a video. A chunk ends at the first placeholder at or after its time; a chunk
// that ends within a grid, because grids are further apart than chunks are long, leaves the grid's rest to the next ones.
std::vector<uint64_t> VideoChunks(std::span<const double> times, uint32_t grid_rows, uint32_t chunk) {
  std::vector<uint64_t> chunks;
  uint64_t begin = 0, number = 1;
  for (size_t grid = 0; grid < times.size(); ++grid) {
    for (uint32_t row = 0; row < grid_rows && times[grid] >= static_cast<double>(number * chunk); ++row) {
      const uint64_t at = grid * grid_rows + row;
      chunks.push_back(at - begin);
      begin = at;
      ++number;
    }
  }
  chunks.push_back(times.size() * grid_rows - begin);
  return chunks;
}

std::vector<uint64_t> AudioChunks(uint64_t rows, uint32_t chunk) {
  std::vector<uint64_t> chunks;
  for (; rows > chunk; rows -= chunk) chunks.push_back(chunk);
  chunks.push_back(rows);
  return chunks;
}

void AddByTime(std::span<const double> times, uint32_t grid_rows, uint32_t audio_rows, Runs& runs) {
  uint64_t audio = 0;
  for (const double time : times) {
    const uint64_t begin = audio;
    while (audio < audio_rows && static_cast<double>(audio) < time) ++audio;
    runs.Add(PlaceholderRun::Of::kAudio, audio - begin);
    runs.Add(PlaceholderRun::Of::kVideo, grid_rows);
  }
  runs.Add(PlaceholderRun::Of::kAudio, audio_rows - audio);
}

}  // namespace

absl::Status InterleaveAudio(const AudioInVideo& rule, const VisionGrid& grid, uint32_t grid_rows,
                             double grid_seconds, uint32_t audio_rows, std::vector<PlaceholderRun>& runs) {
  std::vector<double> times(grid.t);
  for (uint32_t t = 0; t < grid.t; ++t) times[t] = t * grid_seconds * rule.positions_per_second;
  Runs out(grid, runs);
  if (rule.chunk_positions == 0) {
    AddByTime(times, grid_rows, audio_rows, out);
    return absl::OkStatus();
  }
  const std::vector<uint64_t> video = VideoChunks(times, grid_rows, rule.chunk_positions);
  // The model computes times again, in single precision, and truncates them: `get_rope_index`.
  const auto seconds = static_cast<float>(grid_seconds),
             per_second = static_cast<float>(rule.positions_per_second);
  for (uint32_t t = 0; t < grid.t; ++t)
    times[t] = static_cast<double>(static_cast<int64_t>(static_cast<float>(t) * seconds * per_second));
  if (video != VideoChunks(times, grid_rows, rule.chunk_positions)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a video of ", grid.t, " grids, ", grid_seconds,
        " seconds apart: rounding puts a grid into one chunk for the model's positions, and into "
        "another for its processor's placeholders; choose another processor.fps"));
  }
  const std::vector<uint64_t> audio = AudioChunks(audio_rows, rule.chunk_positions);
  for (size_t i = 0; i < std::max(video.size(), audio.size()); ++i) {
    if (i < video.size()) out.Add(PlaceholderRun::Of::kVideo, video[i]);
    if (i < audio.size()) out.Add(PlaceholderRun::Of::kAudio, audio[i]);
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::preprocess
