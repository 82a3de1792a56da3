// Ernie 4.5-VL: Qwen2-VL's pictures, of one frame a patch, between tokens of their own. Its videos are single frames, two
// of which share their tokens; where it draws times on the frames, videos are refused.
//
// The rules are those of transformers'
// models/ernie4_5_vl_moe/{image_processing,video_processing,processing}_ernie4_5_vl_moe.py.
#include <string>
#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen_vision.h"
#include "preprocess/families/single_frames.h"

namespace evenkeel::preprocess {
namespace {

constexpr QwenImageClass kPictures = {"Ernie4_5_VLMoeProcessor", 56 * 56, 28 * 28 * 6177,
                                      /*pixel_keys=*/false, /*frames=*/1};

constexpr SingleFrameClass kVideos = {{.name = "Ernie4_5_VLMoeVideoProcessor",
                                       .patch = 14,
                                       .mean = kClipMean,
                                       .std = kClipStd,
                                       .min_pixels = 299 * 28 * 28,
                                       .max_pixels = 1196 * 28 * 28},
                                      FrameRule::kErnie45VlProcessor,
                                      /*min_frames=*/16,
                                      /*max_frames=*/180,
                                      /*samples=*/true,
                                      /*needs_rate=*/false,
                                      /*shares_pixels=*/false,
                                      /*frames_per_token=*/2,
                                      "draw_on_frames",
                                      "draws times on the frames"};

}  // namespace

MadeFamily MakeErnie45Vl(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(QwenVision vision, ReadQwenVision(config, source.spec, kPictures));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_RETURN_IF_ERROR(config.CheckProcessorClass(
      vision.processor_class, {kPictures.processor_class, "Ernie4_5_VL_MoeProcessor"}));
  vision.vision_begin = "<|IMAGE_START|>";
  vision.vision_end = "<|IMAGE_END|>";
  vision.image_token = "<|IMAGE_PLACEHOLDER|>";
  EVENKEEL_RETURN_IF_ERROR(TakeSingleFrames(source, kVideos, vision));
  if (vision.video) {
    vision.video->style = {.medium = Medium::kVideo,
                           .begin = "<|VIDEO_START|>",
                           .placeholder = "<|VIDEO_PLACEHOLDER|>",
                           .end = "<|VIDEO_END|>",
                           .mrope = true,
                           .template_has_ends = true};
  }
  return MakeQwenVision(std::move(vision), source.limits);
}

}  // namespace evenkeel::preprocess
