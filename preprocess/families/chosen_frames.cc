// Decodes and resizes the chosen frames of a video item, without a copy between decoder and resizer.
#include "preprocess/families/chosen_frames.h"

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "preprocess/resize/float_resizer.h"
#include "preprocess/resize/row_resizer.h"

namespace evenkeel::preprocess {
namespace {

class ResizedBands final : public BandSink {
 public:
  explicit ResizedBands(RowResizer& resizer) : resizer_(resizer) {}
  void TakeBand(const PixelBand& band) override { resizer_.Feed(band); }

 private:
  RowResizer& resizer_;
};

}  // namespace

void AddFrames(ConfigFile& config, const FrameChoice& frames, bool upright) {
  config.Resolved("frame_rule", {std::string(FrameRuleName(frames.rule))});
  config.Resolved("fps", {frames.fps});
  config.Resolved("min_frames", {frames.min_frames});
  config.Resolved("max_frames", {frames.max_frames});
  config.Resolved("num_frames", {frames.num_frames});
  config.Resolved("upright", {uint64_t{upright}});
}

absl::Status DecodeChosenFrames(const ItemRequest& request, const Limits& limits, const FrameChoice& frames,
                                uint32_t count, bool upright, const FrameSink& sink) {
  auto choose = [&](std::span<const int64_t> times, std::vector<uint32_t>& chosen) {
    ChooseFrames(frames, request.facts, count, times, chosen);
  };
  uint64_t repeated = 0;
  EVENKEEL_RETURN_IF_ERROR(DecodeVideo(request.suffix, request.bytes, limits, request.facts,
                                       {std::ref(choose), upright, request.frames}, sink, &repeated));
  if (request.notes != nullptr) request.notes->frames_repeated += repeated;
  return absl::OkStatus();
}

absl::Status ResizeFrame(FrameRows rows, ImageSize native, const PixelSettings& values,
                         const FrameTarget& target, RowSink& out) {
  static thread_local RowResizer resizer;
  resizer.Start({.in = native,
                 .out = target.resized,
                 .left = target.left,
                 .top = target.top,
                 .window = target.window,
                 .filter = values.filter,
                 .resampler = values.picture.resampler},
                &out);
  ResizedBands bands(resizer);
  return rows(bands);
}

absl::Status ResizeFrameInFloats(FrameRows rows, ImageSize native, const PixelSettings& values,
                                 ImageSize resized, RowSink& out) {
  static constexpr std::array<float, 256> kUnscaled = [] {
    std::array<float, 256> table{};
    for (size_t byte = 0; byte < table.size(); ++byte) table[byte] = static_cast<float>(byte);
    return table;
  }();
  static thread_local FloatResizer resizer;
  static thread_local std::vector<float> floats;
  static thread_local std::vector<uint8_t> bytes;
  floats.resize(resized.rgb_bytes());
  bytes.resize(resized.rgb_bytes());
  resizer.Start({.in = native, .out = resized, .filter = ResizeFilter::kBicubic}, kUnscaled, floats);
  EVENKEEL_RETURN_IF_ERROR(ResizeFrame(rows, native, values, {.resized = native}, resizer));
  RoundToBytes(floats, bytes.data());
  const size_t plane = size_t{resized.width} * resized.height;
  for (uint32_t y = 0; y < resized.height; ++y) {
    const uint8_t* const row = bytes.data() + size_t{y} * resized.width;
    out.Take({{row, row + plane, row + 2 * plane}, resized.width});
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::preprocess
