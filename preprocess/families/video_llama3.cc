// VideoLLaMA3: Qwen2-VL's pictures, of one frame a patch and with a token for each patch unless the file merges some,
// and the merge size of each. Its videos are single frames with their times; with token compression, by which tokens
// depend on the pixels, they are refused.
//
// The rules are those of transformers' models/video_llama_3/{image_processing,video_processing,processing}_video_llama_3.py.
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen_vision.h"
#include "preprocess/families/single_frames.h"

namespace evenkeel::preprocess {
namespace {

constexpr QwenImageClass kPictures = {
    "VideoLlama3Processor", 56 * 56,     28 * 28 * 1280, /*pixel_keys=*/true,
    /*frames=*/1,           /*merge=*/1, kHalves,        kHalves};

constexpr SingleFrameClass kVideos = {
    {.name = "VideoLlama3VideoProcessor",
     .patch = 14,
     .mean = kHalves,
     .std = kHalves,
     .min_pixels = 128 * 28 * 28,
     .max_pixels = 28 * 28 * 768,
     .pixel_keys = true,
     .frames = 1},
    FrameRule::kQwen2VlProcessor,
    /*min_frames=*/4,
    /*max_frames=*/180,
    /*samples=*/false,
    /*needs_rate=*/true,
    /*shares_pixels=*/true,
    /*frames_per_token=*/1,
    "use_token_compression",
    "leaves out tokens of what does not change, so that lengths depend on pixels"};

std::string TimeOfFrame(std::span<const uint32_t> group, double fps) {
  return absl::StrFormat("Time %.1fs:", group.front() / fps);
}

}  // namespace

MadeFamily MakeVideoLlama3(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(QwenVision vision, ReadQwenVision(config, source.spec, kPictures));
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  EVENKEEL_RETURN_IF_ERROR(config.CheckProcessorClass(vision.processor_class, {kPictures.processor_class}));
  vision.vision_begin = vision.vision_end = "";
  vision.mrope = false;
  vision.merge_field = "image_merge_sizes";
  EVENKEEL_RETURN_IF_ERROR(TakeSingleFrames(source, kVideos, vision));
  if (vision.video) {
    vision.video->timed = true;
    vision.video->time = TimeOfFrame;
    vision.video->between = ",";
    vision.video->merge_field = "video_merge_sizes";
    vision.video->style = {.medium = Medium::kVideo, .placeholder = vision.video_token};
  }
  return MakeQwenVision(std::move(vision), source.limits);
}

}  // namespace evenkeel::preprocess
