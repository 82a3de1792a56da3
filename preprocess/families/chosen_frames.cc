// Decodes and resizes the chosen frames of a video item, without a copy between decoder and resizer.
#include "preprocess/families/chosen_frames.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
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

}  // namespace evenkeel::preprocess
