// VideoLLaMA3: Qwen2-VL's pictures, of one frame a patch and with a token for each patch unless the file merges some,
// and the merge size of each. Its videos, whose tokens depend on the pixels, are refused.
//
// The rules are those of transformers' models/video_llama_3/{image_processing,processing}_video_llama_3.py.
#include <utility>

#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen_vision.h"

namespace evenkeel::preprocess {
namespace {

constexpr QwenImageClass kPictures = {
    "VideoLlama3Processor", 56 * 56,     28 * 28 * 1280, /*pixel_keys=*/true,
    /*frames=*/1,           /*merge=*/1, kHalves,        kHalves};

}  // namespace

MadeFamily MakeVideoLlama3(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(QwenVision vision, ReadQwenVision(config, source.spec, kPictures));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_RETURN_IF_ERROR(
      FinishUnusedVideo(source.checkpoint, {"min_frames", "max_frames", "use_token_compression"}));
  EVENKEEL_RETURN_IF_ERROR(config.CheckProcessorClass(vision.processor_class, {kPictures.processor_class}));
  vision.vision_begin = vision.vision_end = "";
  vision.mrope = false;
  vision.merge_field = "image_merge_sizes";
  vision.no_video = "it leaves out tokens of what does not change, which is not implemented";
  return MakeQwenVision(std::move(vision), source.limits);
}

}  // namespace evenkeel::preprocess
