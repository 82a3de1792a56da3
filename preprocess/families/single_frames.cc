// Reads the video processors of VideoLLaMA3 and Ernie 4.5-VL, which cut single frames into patches.
#include "preprocess/families/single_frames.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/chosen_frames.h"
#include "preprocess/families/qwen2_vl.h"

namespace evenkeel::preprocess {
namespace {

// Which frames are chosen; as their processors, unless the job asks otherwise. Unimplemented: it fails there.
absl::StatusOr<FrameChoice> ChoiceOf(const ConfigFile& config, const ProcessorSpec& spec,
                                     const SingleFrameClass& usual, QwenVideoFile file, bool samples) {
  EVENKEEL_ASSIGN_OR_RETURN(const FrameRule rule, FrameRuleOf(spec.frame_rule, usual.rule, usual.rule));
  if (rule == FrameRule::kQwenVlUtils) {
    return absl::InvalidArgumentError(
        "processor.frame_rule: 'qwen_vl_utils' is of the Qwen families; this family's are transformers and "
        "uniform");
  }
  if (spec.video_min_pixels || spec.video_max_pixels) {
    return absl::InvalidArgumentError(
        "processor.video_min_pixels and video_max_pixels are of the Qwen families; frames have the bounds of "
        "the "
        "video processor's file");
  }
  const bool has_rate = file.fps != 0 || spec.fps;
  if (file.min_frames == 0) file.min_frames = usual.min_frames;
  if (file.max_frames == 0) file.max_frames = usual.max_frames;
  EVENKEEL_ASSIGN_OR_RETURN(FrameChoice out, FramesOf(rule, spec, file, /*multiple=*/1));
  if (rule != usual.rule) return out;
  if (!has_rate && !usual.needs_rate) out.fps = 0;
  out.num_frames = file.num_frames;
  const bool asks = spec.fps || spec.min_frames || spec.max_frames || !spec.frame_rule.empty();
  if (!samples && !asks) {
    out.rule = FrameRule::kAll;
    return out;
  }
  std::string fails;
  if (out.num_frames != 0 && has_rate) {
    fails = "is given together with fps, which fails in transformers";
  } else if (out.num_frames == 0 && !has_rate && !asks && usual.needs_rate) {
    fails = "and fps are missing, without which do_sample_frames fails in transformers";
  } else if (out.num_frames != 0 && !usual.needs_rate &&
             (out.num_frames < out.min_frames || out.num_frames > out.max_frames)) {
    fails = absl::StrCat("is ", out.num_frames, ", not within min_frames, ", out.min_frames,
                         ", and max_frames, ", out.max_frames, ", which fails in transformers");
  }
  if (!fails.empty()) return absl::UnimplementedError(config.Error("num_frames", fails).message());
  return out;
}

}  // namespace

absl::Status TakeSingleFrames(const FamilySource& source, const SingleFrameClass& usual, QwenVision& vision) {
  const ProcessorSpec spec = source.ForFrames();
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile own, ConfigFile::ReadOwnVideoProcessor(source.checkpoint));
  const bool refused = own.Flag(usual.refused, true);
  const bool is_there = own.Choice("video_processor_type", "") == usual.file.name;
  if (refused || !is_there) {
    own.Resolved(usual.refused, {});  // changes nothing for pictures
    vision.RefuseVideos(
        is_there ? own.Error(usual.refused,
                             absl::StrCat(
                                 "is true: the processor ", std::string(usual.refused_does),
                                 ", which is not implemented. Set it to false, or let Python make the videos "
                                 "(processor.python: transformers)"))
                 : absl::UnimplementedError(absl::StrCat(source.checkpoint.folder, ": has no file of a ",
                                                         std::string(usual.file.name))));
    return FinishUnusedVideo(source.checkpoint, {"min_frames", "max_frames", "font", usual.refused});
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::optional<ConfigFile> config,
                            FindQwenVideo(source.checkpoint, usual.file, vision));
  if (!config) return absl::OkStatus();
  config->Pin(usual.refused, false);
  const bool samples = config->Flag("do_sample_frames", usual.samples);
  config->Inert({"font"});
  QwenVision expected = vision;  // the shape that the file must have
  expected.shape.merge = usual.file.merge;
  expected.shape.frames = usual.file.frames;
  EVENKEEL_ASSIGN_OR_RETURN(const QwenVideoFile file, ReadQwenVideoFile(*config, expected, spec, usual.file));
  absl::StatusOr<FrameChoice> frames = ChoiceOf(*config, spec, usual, file, samples);
  if (absl::IsUnimplemented(frames.status())) {
    vision.RefuseVideos(frames.status());
    return absl::OkStatus();
  }
  EVENKEEL_RETURN_IF_ERROR(frames.status());
  QwenVideo& video = vision.video.emplace();
  video.pixels = file.pixels;
  video.frames = *frames;
  video.shape = {.patch = vision.shape.patch, .frames = 1, .merge = usual.file.merge};
  video.frames_per_token = usual.frames_per_token;
  video.upright = spec.apply_video_rotation;
  video.seconds_field = "";
  const uint32_t factor = video.shape->patch * video.shape->merge;
  video.size = [factor, file, shares = usual.shares_pixels](
                   ImageSize native, uint32_t num_frames) -> absl::StatusOr<ImageSize> {
    if (!file.pixels.resized) return UnchangedSize(native, factor);
    const uint64_t most = shares ? file.max_pixels / num_frames : file.max_pixels;
    return SmartResize(native.height, native.width, factor, static_cast<double>(file.min_pixels),
                       static_cast<double>(most), /*at_least_factor=*/false);
  };
  AddFrames(*config, video.frames, video.upright);
  config->Resolved("bounds", {file.min_pixels, file.max_pixels});
  return absl::OkStatus();
}

}  // namespace evenkeel::preprocess
