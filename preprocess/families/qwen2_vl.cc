// Computes the sizes of Qwen2-VL's pictures and frames, and reads the options of its video processor.
#include "preprocess/families/qwen2_vl.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/chosen_frames.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen_vision.h"

namespace evenkeel::preprocess {
namespace {

constexpr double kMaxAspectRatio = 200;
constexpr uint32_t kFrameFactor = 2;

double RoundTo(double value, double factor) { return std::nearbyint(value / factor) * factor; }
double FloorTo(double value, double factor) { return std::floor(value / factor) * factor; }
double CeilTo(double value, double factor) { return std::ceil(value / factor) * factor; }

// The video processor's own bounds: of every frame, and with a cap of its share of a video's total.
struct ProcessorBounds {
  uint64_t min_pixels = 0;
  uint64_t max_pixels = 0;
  uint64_t capped_tokens = 0;  // 0: no cap
  bool resized = true;         // else frames keep their size
};

absl::StatusOr<ImageSize> ProcessorSize(ImageSize native, uint32_t num_frames, const PatchShape& shape,
                                        const ProcessorBounds& bounds) {
  const uint32_t factor = shape.patch * shape.merge;
  if (!bounds.resized) return UnchangedSize(native, factor);
  auto max_pixels = static_cast<double>(bounds.max_pixels);
  const auto min_pixels = static_cast<double>(bounds.min_pixels);
  // Nine tenths of the pixels that a video may have are shared by its temporal patches; a frame gets at least
  // its minimum and 5 % more.
  if (bounds.capped_tokens != 0) {
    const double total = std::trunc(static_cast<double>(bounds.capped_tokens * factor * factor) * 0.9);
    const double share = std::floor(total * shape.frames / num_frames);
    max_pixels = std::max(std::min(max_pixels, share), std::trunc(min_pixels * 1.05));
  }
  return SmartResize(native.height, native.width, factor, min_pixels, max_pixels, /*at_least_factor=*/false);
}

// A file's `num_frames`, rounded to whole temporal patches as its processor does.
uint32_t FixedCount(uint32_t num_frames, uint32_t patch) {
  return static_cast<uint32_t>(RoundTo(num_frames, patch));
}

// Positions per second of video, from Qwen2.5-VL's config.json; 2 without that file, as in every
// published checkpoint. Qwen2-VL has none.
absl::StatusOr<uint32_t> TokensPerSecond(const QwenVision& vision, const CheckpointFolder& checkpoint) {
  if (vision.processor_class != "Qwen2_5_VLProcessor") return 0;
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(checkpoint));
  const auto per_second =
      static_cast<uint32_t>(model.UintIn("vision_config", "tokens_per_second", 2, 1, 1000));
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  return per_second;
}

// Without a bound in the job, qwen-vl-utils computes one from the model's patch size, which has its own line.
std::vector<ConsumedKeys::Value> GivenBound(std::optional<uint64_t> bound) {
  if (!bound) return {};
  return {*bound};
}

void AddVideo(ConfigFile& config, const QwenVideo& video, const ProcessorBounds& bounds,
              const UtilsBounds& utils) {
  AddFrames(config, video.frames, video.upright);
  config.Resolved("bounds", {bounds.min_pixels, bounds.max_pixels});
  config.Resolved("utils.min_pixels", GivenBound(utils.min_pixels));
  config.Resolved("utils.max_pixels", GivenBound(utils.max_pixels));
}

}  // namespace

// Both sides are rounded to multiples of the factor. If the area is then out of bounds, both sides are divided by
// sqrt(area / bound), which keeps the shape, and rounded so that the bound holds: down if the picture was too large, up
// if it was too small. All in doubles, in the original's order, since a last bit can move a side by a whole factor.
SmartSides SidesBy(const SmartRule& rule, uint32_t height, uint32_t width) {
  const double f = rule.factor, area = static_cast<double>(height) * width;
  SmartSides sides{std::max(rule.least, RoundTo(height, f)), std::max(rule.least, RoundTo(width, f))};
  if (sides.height * sides.width > rule.max_pixels) {
    const double shrink = std::sqrt(area / rule.max_pixels);
    sides.height = std::max(rule.least_shrunk, FloorTo(height / shrink, f));
    sides.width = std::max(rule.least_shrunk, FloorTo(width / shrink, f));
  } else if (sides.height * sides.width < rule.min_pixels) {
    const double grow = std::sqrt(rule.min_pixels / area);
    sides.height = CeilTo(height * grow, f);
    sides.width = CeilTo(width * grow, f);
  }
  return sides;
}

absl::StatusOr<ImageSize> SmartResize(uint32_t height, uint32_t width, uint32_t factor, double min_pixels,
                                      double max_pixels, bool at_least_factor) {
  if (height == 0 || width == 0) return absl::InvalidArgumentError("no pixels");
  if (static_cast<double>(std::max(height, width)) / std::min(height, width) > kMaxAspectRatio) {
    return absl::InvalidArgumentError(
        absl::StrCat("aspect ratio of ", width, "x", height, " is above 200, which the processor refuses"));
  }
  SmartRule rule{.factor = static_cast<double>(factor), .min_pixels = min_pixels, .max_pixels = max_pixels};
  (at_least_factor ? rule.least : rule.least_shrunk) = factor;
  const auto [h, w] = SidesBy(rule, height, width);
  if (h < 1 || w < 1 || h > 65536 || w > 65536) {
    return absl::InvalidArgumentError(absl::StrCat(width, "x", height, " pixels become ", w, "x", h));
  }
  return ImageSize{static_cast<uint32_t>(w), static_cast<uint32_t>(h)};
}

absl::StatusOr<ImageSize> UtilsFrameSize(ImageSize native, uint32_t num_frames, uint32_t factor,
                                         const UtilsBounds& bounds) {
  const auto token_pixels = static_cast<double>(uint64_t{factor} * factor);
  const auto min_pixels = static_cast<double>(bounds.min_pixels.value_or(128 * uint64_t{factor} * factor));
  const double total = 128000 * token_pixels * 0.9;
  double max_pixels = std::min(768 * token_pixels, total / num_frames * kFrameFactor);
  max_pixels = std::max(max_pixels, std::trunc(min_pixels * 1.05));
  if (bounds.max_pixels) max_pixels = std::min(max_pixels, static_cast<double>(*bounds.max_pixels));
  return SmartResize(native.height, native.width, factor, min_pixels, max_pixels, /*at_least_factor=*/true);
}

absl::StatusOr<ImageSize> UnchangedSize(ImageSize size, uint32_t factor) {
  if (size.width == 0 || size.height == 0) return absl::InvalidArgumentError("no pixels");
  if (size.width % factor == 0 && size.height % factor == 0) return size;
  return absl::InvalidArgumentError(
      absl::StrCat(size.width, "x", size.height,
                   " pixels, where do_resize is false and sides must be multiples of ", factor));
}

absl::Status TakeQwen2Videos(const FamilySource& source, FramePixels frame_pixels, QwenVision& vision) {
  const ProcessorSpec spec = source.ForFrames();
  EVENKEEL_ASSIGN_OR_RETURN(
      FrameRule rule, FrameRuleOf(spec.frame_rule, FrameRule::kQwen2VlProcessor, FrameRule::kQwenVlUtils,
                                  /*has_fetch_video=*/true));
  EVENKEEL_ASSIGN_OR_RETURN(std::optional<ConfigFile> config,
                            FindQwenVideo(source.checkpoint, kQwen2VlVideo, vision));
  if (!config) return absl::OkStatus();
  EVENKEEL_ASSIGN_OR_RETURN(QwenVideoFile file, ReadQwenVideoFile(*config, vision, spec, kQwen2VlVideo));
  const bool own_rule = rule == FrameRule::kQwen2VlProcessor;  // else qwen-vl-utils runs before the processor
  EVENKEEL_ASSIGN_OR_RETURN(FrameChoice frames,
                            FramesOf(rule, spec, own_rule ? file : QwenVideoFile{}, vision.shape.frames));
  if (own_rule && file.num_frames != 0) {
    frames.num_frames = FixedCount(file.num_frames, vision.shape.frames);
    const bool also_fps = file.fps != 0 || spec.fps;
    if (also_fps || frames.num_frames == 0) {
      vision.RefuseVideos(
          config->Error("num_frames", also_fps ? "is given together with fps, which fails in transformers"
                                               : "is no more than half of a temporal patch"));
      return absl::OkStatus();
    }
  }
  QwenVideo& video = vision.video.emplace();
  video.pixels = file.pixels;
  video.frames = frames;
  ProcessorBounds bounds{
      .min_pixels = file.min_pixels, .max_pixels = file.max_pixels, .resized = file.pixels.resized};
  if (frame_pixels.most != 0) {
    bounds.min_pixels = frame_pixels.least;
    bounds.max_pixels = frame_pixels.most;
  }
  if (file.cap_pixels_per_frame) bounds.capped_tokens = file.max_video_tokens;
  const UtilsBounds utils{spec.video_min_pixels, spec.video_max_pixels};
  if (own_rule && utils.min_pixels) bounds.min_pixels = *utils.min_pixels;
  if (own_rule && utils.max_pixels) bounds.max_pixels = *utils.max_pixels;
  video.upright = spec.apply_video_rotation;
  video.in_floats = rule == FrameRule::kFetchVideo;
  EVENKEEL_ASSIGN_OR_RETURN(video.tokens_per_second, TokensPerSecond(vision, source.checkpoint));
  video.size = [shape = vision.shape, own_rule, in_floats = video.in_floats, bounds, utils](
                   ImageSize size, uint32_t num_frames) -> absl::StatusOr<ImageSize> {
    if (own_rule) return ProcessorSize(size, num_frames, shape, bounds);
    EVENKEEL_ASSIGN_OR_RETURN(const ImageSize fetched,
                              UtilsFrameSize(size, num_frames, shape.patch * shape.merge, utils));
    EVENKEEL_ASSIGN_OR_RETURN(const ImageSize resized, ProcessorSize(fetched, num_frames, shape, bounds));
    if (!in_floats || fetched == resized) return resized;
    return absl::UnimplementedError(absl::StrCat(
        "frames of ", fetched.width, "x", fetched.height,
        " by fetch_video, which the video processor's file resizes to ", resized.width, "x", resized.height,
        ": floats are resized once; give processor.video_min_pixels and video_max_pixels within the file's "
        "bounds"));
  };
  AddVideo(*config, video, bounds, own_rule ? UtilsBounds{} : utils);
  return absl::OkStatus();
}

MadeFamily MakeQwen2Vl(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(QwenVision vision, ReadQwenVision(config, source.spec));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  if (vision.processor_class != "Qwen2VLProcessor" && vision.processor_class != "Qwen2_5_VLProcessor") {
    EVENKEEL_RETURN_IF_ERROR(FinishUnusedVideo(
        source.checkpoint, {"min_frames", "max_frames", "cap_pixels_per_frame", "max_video_tokens"}));
    return MakeQwenVision(std::move(vision), source.limits);
  }
  EVENKEEL_RETURN_IF_ERROR(TakeQwen2Videos(source, {}, vision));
  return MakeQwenVision(std::move(vision), source.limits);
}

}  // namespace evenkeel::preprocess
