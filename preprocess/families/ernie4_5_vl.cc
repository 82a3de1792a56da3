// Ernie 4.5-VL: Qwen2-VL's pictures, of one frame a patch, between tokens of their own. Its videos, on whose frames it
// draws their times, are refused.
//
// The rules are those of transformers' models/ernie4_5_vl_moe/{image_processing,processing}_ernie4_5_vl_moe.py.
#include <string>
#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen_vision.h"

namespace evenkeel::preprocess {
namespace {

constexpr QwenImageClass kPictures = {"Ernie4_5_VLMoeProcessor", 56 * 56, 28 * 28 * 6177,
                                      /*pixel_keys=*/false, /*frames=*/1};

}  // namespace

MadeFamily MakeErnie45Vl(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(QwenVision vision, ReadQwenVision(config, source.spec, kPictures));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_RETURN_IF_ERROR(
      FinishUnusedVideo(source.checkpoint, {"min_frames", "max_frames", "draw_on_frames", "font"}));
  EVENKEEL_RETURN_IF_ERROR(config.CheckProcessorClass(
      vision.processor_class, {kPictures.processor_class, "Ernie4_5_VL_MoeProcessor"}));
  vision.vision_begin = "<|IMAGE_START|>";
  vision.vision_end = "<|IMAGE_END|>";
  vision.image_token = "<|IMAGE_PLACEHOLDER|>";
  vision.no_video = "it draws times on the frames, which is not implemented";
  return MakeQwenVision(std::move(vision), source.limits);
}

}  // namespace evenkeel::preprocess
