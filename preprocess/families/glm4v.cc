// GLM-4V (4.1V, 4.5V, 4.6V): pictures as patches on a grid, as in the Qwen-VL families. Their sizes are
// computed as if a picture were the frames of one temporal patch.
//
// The rules are those of transformers' models/glm4v/{image_processing,processing}_glm4v.py.
#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen3_vl.h"
#include "preprocess/families/qwen_vision.h"

namespace evenkeel::preprocess {
namespace {

constexpr QwenImageClass kGlm4vImages = {.processor_class = "Glm4vProcessor",
                                         .min_pixels = 112 * 112,
                                         .max_pixels = 28 * 28 * 15000,
                                         .pixel_keys = false};

}  // namespace

MadeFamily MakeGlm4v(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(QwenVision vision, ReadQwenVision(config, source.spec, kGlm4vImages));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_RETURN_IF_ERROR(FinishUnusedVideo(source.checkpoint, {"max_duration", "max_image_size"}));
  vision.vision_begin = "<|begin_of_image|>";
  vision.vision_end = "<|end_of_image|>";
  vision.image_token = "<|image|>";
  vision.no_video = "only its pictures are implemented";
  vision.image_size = [frames = vision.shape.frames,
                       rule = Qwen3VideoSize{.temporal_factor = vision.shape.frames,
                                             .factor = vision.factor(),
                                             .min_pixels = vision.min_pixels,
                                             .max_pixels = vision.max_pixels}](ImageSize picture) {
    return SmartResize3d(frames, picture, rule);
  };
  return MakeQwenVision(std::move(vision), source.limits);
}

}  // namespace evenkeel::preprocess
