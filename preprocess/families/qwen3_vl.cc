// Computes the frame sizes of Qwen3-VL's videos, and the times in its text.
#include "preprocess/families/qwen3_vl.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/chosen_frames.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen2_vl.h"
#include "preprocess/families/qwen_vision.h"

namespace evenkeel::preprocess {
namespace {

constexpr double kMaxAspectRatio = 200;

// nullopt, and the reason in `vision`, if the file needs frames that are not implemented.
absl::StatusOr<std::optional<QwenVideo>> ReadVideo(ConfigFile config, const ProcessorSpec& spec,
                                                   QwenVision& vision) {
  const bool samples = config.Flag("do_sample_frames", true);
  config.Inert({"max_duration", "max_image_size"});
  EVENKEEL_ASSIGN_OR_RETURN(QwenVideoFile file, ReadQwenVideoFile(config, vision, spec, kQwen3VlVideo));
  if (!samples || file.num_frames != 0) {
    vision.RefuseVideos(
        samples ? config.Error("num_frames", "a fixed number of frames is not implemented; fps is")
                : config.Error("do_sample_frames", "is false; only true is implemented"));
    return std::optional<QwenVideo>();
  }
  Qwen3VideoSize size{.temporal_factor = vision.shape.frames, .factor = vision.factor()};
  size.min_pixels = file.min_pixels;
  size.max_pixels = file.max_pixels;
  if (file.cap_pixels_per_frame) size.max_frame_tokens = file.max_video_tokens;
  EVENKEEL_ASSIGN_OR_RETURN(
      FrameRule rule, FrameRuleOf(spec.frame_rule, FrameRule::kQwen3VlProcessor, FrameRule::kQwen3VlProcessor,
                                  /*has_fetch_video=*/true));
  const bool fetched = rule == FrameRule::kFetchVideo;
  if (!fetched && (spec.video_min_pixels || spec.video_max_pixels)) {
    return absl::InvalidArgumentError(
        "processor.video_min_pixels and video_max_pixels count pixels of a frame; this processor's file "
        "bounds all "
        "frames of a video together");
  }
  QwenVideo video;
  video.pixels = file.pixels;
  EVENKEEL_ASSIGN_OR_RETURN(video.frames,
                            FramesOf(rule, spec, fetched ? QwenVideoFile{} : file, vision.shape.frames));
  video.upright = spec.apply_video_rotation;
  video.timed = true;
  video.time = TimeOf;
  const bool resized = file.pixels.resized;
  video.size = [size, resized](ImageSize native, uint32_t num_frames) {
    return resized ? SmartResize3d(num_frames, native, size) : UnchangedSize(native, size.factor);
  };
  if (fetched) {
    const UtilsBounds bounds{spec.video_min_pixels, spec.video_max_pixels};
    video.in_floats = true;
    video.size = [bounds, factor = size.factor](ImageSize native, uint32_t num_frames) {
      return UtilsFrameSize(native, num_frames, factor, bounds);
    };
    for (const auto& [key, bound] :
         {std::pair("utils.min_pixels", bounds.min_pixels), {"utils.max_pixels", bounds.max_pixels}}) {
      if (bound) config.Resolved(key, {*bound});
    }
  }
  AddFrames(config, video.frames, video.upright);
  return std::optional<QwenVideo>(std::move(video));
}

}  // namespace

absl::StatusOr<ImageSize> SmartResize3d(uint32_t num_frames, ImageSize native, const Qwen3VideoSize& rule) {
  if (num_frames < rule.temporal_factor) {
    return absl::InvalidArgumentError(
        absl::StrCat(num_frames, " frames are chosen; the processor needs ", rule.temporal_factor));
  }
  if (native.width == 0 || native.height == 0) return absl::InvalidArgumentError("no pixels");
  const double f = rule.factor;
  double height = native.height, width = native.width;
  if (height < f || width < f) {
    const double scale = std::max(f / height, f / width);
    height = std::trunc(height * scale);
    width = std::trunc(width * scale);
  }
  if (std::max(height, width) / std::min(height, width) > kMaxAspectRatio) {
    return absl::InvalidArgumentError(absl::StrCat("aspect ratio of ", native.width, "x", native.height,
                                                   " is above 200, which the processor refuses"));
  }
  uint64_t most = rule.max_pixels;
  if (rule.max_frame_tokens != 0) {
    const uint64_t share = rule.max_pixels / num_frames;
    const uint64_t capped = std::min(uint64_t{rule.max_frame_tokens} * rule.factor * rule.factor, share);
    most = std::max(capped, static_cast<uint64_t>(static_cast<double>(rule.min_pixels) * 1.05)) * num_frames;
  }
  const auto max_pixels = static_cast<double>(most);
  const auto min_pixels = static_cast<double>(rule.min_pixels);
  double h = std::nearbyint(height / f) * f;
  double w = std::nearbyint(width / f) * f;
  const double t = std::nearbyint(num_frames / double(rule.temporal_factor)) * rule.temporal_factor;
  if (t * h * w > max_pixels) {
    const double shrink = std::sqrt(num_frames * height * width / max_pixels);
    h = std::max(f, std::floor(height / shrink / f) * f);
    w = std::max(f, std::floor(width / shrink / f) * f);
  } else if (t * h * w < min_pixels) {
    const double grow = std::sqrt(min_pixels / (num_frames * height * width));
    h = std::ceil(height * grow / f) * f;
    w = std::ceil(width * grow / f) * f;
  }
  if (h < 1 || w < 1 || h > 65536 || w > 65536) {
    return absl::InvalidArgumentError(
        absl::StrCat(native.width, "x", native.height, " pixels become ", w, "x", h));
  }
  return ImageSize{static_cast<uint32_t>(w), static_cast<uint32_t>(h)};
}

MadeFamily MakeQwen3Vl(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(QwenVision vision, ReadQwenVision(config, source.spec));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_ASSIGN_OR_RETURN(std::optional<ConfigFile> video,
                            FindQwenVideo(source.checkpoint, kQwen3VlVideo, vision));
  if (video) {
    EVENKEEL_ASSIGN_OR_RETURN(vision.video, ReadVideo(*std::move(video), source.ForFrames(), vision));
  }
  return MakeQwenVision(std::move(vision), source.limits);
}

}  // namespace evenkeel::preprocess
