// GLM-4V (4.1V, 4.5V, 4.6V): pictures and videos as patches on a grid, as in the Qwen-VL families. Their sizes
// are computed as if a picture were the frames of one temporal patch. Every grid of a video stands between the
// tokens of a picture, and its time follows it as text.
//
// The rules are those of transformers' models/glm4v/{image_processing,video_processing,processing}_glm4v.py
// and of the same files of models/glm46v.
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "preprocess/families/chosen_frames.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen2_vl.h"
#include "preprocess/families/qwen3_vl.h"
#include "preprocess/families/qwen_vision.h"

namespace evenkeel::preprocess {
namespace {

// What 4.1V and 4.5V differ in from 4.6V.
struct GlmClass {
  QwenImageClass images;
  QwenVideoClass videos;
  FrameRule rule = FrameRule::kGlm4vProcessor;
  std::string (*time)(std::span<const uint32_t> group, double fps) = nullptr;
};

// str(int(seconds)) and f"{seconds:.1f} seconds" of a grid's first frame.
std::string WholeSeconds(std::span<const uint32_t> group, double fps) {
  return absl::StrCat(static_cast<int64_t>(group.front() / fps));
}
std::string Seconds(std::span<const uint32_t> group, double fps) {
  return absl::StrFormat("%.1f seconds", group.front() / fps);
}

constexpr uint64_t kMinPixels = 112 * 112, kMaxPicturePixels = 28 * 28 * 15000;
constexpr uint64_t kMaxVideoPixels = 28 * 28 * 2 * 30000;
constexpr GlmClass kGlm4v = {{"Glm4vProcessor", kMinPixels, kMaxPicturePixels, /*pixel_keys=*/false},
                             {.name = "Glm4vVideoProcessor",
                              .patch = 14,
                              .mean = kClipMean,
                              .std = kClipStd,
                              .min_pixels = kMinPixels,
                              .max_pixels = kMaxVideoPixels,
                              .bounds_frames = false},
                             FrameRule::kGlm4vProcessor,
                             WholeSeconds};
constexpr GlmClass kGlm46v = {{"Glm46VProcessor", kMinPixels, kMaxPicturePixels, /*pixel_keys=*/false},
                              {.name = "Glm46VVideoProcessor",
                               .patch = 14,
                               .mean = kClipMean,
                               .std = kClipStd,
                               .min_pixels = kMinPixels,
                               .max_pixels = kMaxVideoPixels,
                               .bounds_frames = false,
                               .has_fps = false},
                              FrameRule::kGlm46vProcessor,
                              Seconds};

// The job's frames. InvalidArgument: options that the processor has no argument for.
absl::StatusOr<FrameChoice> ReadFrames(const GlmClass& of, const ProcessorSpec& spec,
                                       const QwenVideoFile& file, uint32_t multiple) {
  if (spec.video_min_pixels || spec.video_max_pixels) {
    return absl::InvalidArgumentError(
        "processor.video_min_pixels and video_max_pixels count pixels of a frame; this processor's file "
        "bounds all frames of a video together");
  }
  EVENKEEL_ASSIGN_OR_RETURN(const FrameRule rule, FrameRuleOf(spec.frame_rule, of.rule, of.rule));
  if (rule == of.rule && (spec.min_frames || spec.max_frames)) {
    return absl::InvalidArgumentError(
        "processor.min_frames and max_frames: this processor has no bounds; the frame_rule uniform has");
  }
  if (rule == FrameRule::kGlm46vProcessor && spec.fps) {
    return absl::InvalidArgumentError(
        "processor.fps: this processor ignores it; the frame_rule uniform does not");
  }
  return FramesOf(rule, spec, file, multiple);
}

// Sets the videos, or why they are refused.
absl::Status TakeVideos(ConfigFile config, const GlmClass& of, const ProcessorSpec& spec,
                        QwenVision& vision) {
  const bool samples = config.Flag("do_sample_frames", true);
  const double max_duration = config.Real("max_duration", 300);
  config.Inert({"max_image_size"});
  EVENKEEL_ASSIGN_OR_RETURN(const QwenVideoFile file, ReadQwenVideoFile(config, vision, spec, of.videos));
  if (!samples || vision.shape.frames != 2 || !(max_duration > 0)) {
    vision.RefuseVideos(!samples ? config.Error("do_sample_frames", "is false; only true is implemented")
                        : vision.shape.frames != 2
                            ? config.Error("temporal_patch_size", "is not 2, which its text assumes")
                            : config.Error("max_duration", "is not positive"));
    return absl::OkStatus();
  }
  QwenVideo video;
  EVENKEEL_ASSIGN_OR_RETURN(video.frames, ReadFrames(of, spec, file, vision.shape.frames));
  video.frames.max_duration = max_duration;
  video.pixels = file.pixels;
  video.upright = spec.apply_video_rotation;
  video.timed = video.time_follows = true;
  video.time = of.time;
  video.style = MediumStyle{.medium = Medium::kVideo,
                            .begin = vision.vision_begin,
                            .placeholder = vision.image_token,
                            .end = vision.vision_end,
                            .mrope = true,
                            .in_template = "<|video|>",
                            .item_begin = "<|begin_of_video|>",
                            .item_end = "<|end_of_video|>"};
  const Qwen3VideoSize size{.temporal_factor = vision.shape.frames,
                            .factor = vision.factor(),
                            .min_pixels = file.min_pixels,
                            .max_pixels = file.max_pixels};
  video.size = [size, resized = file.pixels.resized](ImageSize native, uint32_t num_frames) {
    return resized ? SmartResize3d(num_frames, native, size) : UnchangedSize(native, size.factor);
  };
  AddFrames(config, video.frames, video.upright);
  vision.video = std::move(video);
  return absl::OkStatus();
}

MadeFamily MakeGlm(ConfigFile config, const FamilySource& source, const GlmClass& of) {
  EVENKEEL_ASSIGN_OR_RETURN(QwenVision vision, ReadQwenVision(config, source.spec, of.images));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  vision.vision_begin = "<|begin_of_image|>";
  vision.vision_end = "<|end_of_image|>";
  vision.image_token = "<|image|>";
  vision.image_size = [frames = vision.shape.frames,
                       rule = Qwen3VideoSize{.temporal_factor = vision.shape.frames,
                                             .factor = vision.factor(),
                                             .min_pixels = vision.min_pixels,
                                             .max_pixels = vision.max_pixels}](ImageSize picture) {
    return SmartResize3d(frames, picture, rule);
  };
  EVENKEEL_ASSIGN_OR_RETURN(std::optional<ConfigFile> video,
                            FindQwenVideo(source.checkpoint, of.videos, vision));
  if (video) EVENKEEL_RETURN_IF_ERROR(TakeVideos(*std::move(video), of, source.ForFrames(), vision));
  return MakeQwenVision(std::move(vision), source.limits);
}

}  // namespace

MadeFamily MakeGlm4v(ConfigFile config, const FamilySource& source) {
  return MakeGlm(std::move(config), source, kGlm4v);
}

MadeFamily MakeGlm46v(ConfigFile config, const FamilySource& source) {
  return MakeGlm(std::move(config), source, kGlm46v);
}

}  // namespace evenkeel::preprocess
