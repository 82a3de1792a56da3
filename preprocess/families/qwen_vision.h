// What the Qwen-VL families share: images and video as flattened patches on a grid. qwen2_vl.cc and
// qwen3_vl.cc say how large pictures and frames become, and how a video's times are told.
//
// Thread safety: as MediaFamily.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "preprocess/families/family.h"
#include "preprocess/families/patches.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/video/frame_rules.h"

namespace evenkeel::preprocess {

struct QwenVideo {
  PixelSettings pixels;  // of frames: resampling and normalisation
  FrameChoice frames;
  // The size that frames of `native` pixels become where so many are chosen. InvalidArgument: they are
  // refused.
  std::function<absl::StatusOr<ImageSize>(ImageSize native, uint32_t num_frames)> size;
  // Qwen3-VL: every grid in time stands for itself, with its time before it; else all grids are one run, and
  // second_per_grid_ts is a field.
  bool timed = false;
  bool upright = false;            // frames are turned as rotation metadata says
  uint32_t tokens_per_second = 0;  // positions, see SequenceStyle
  bool after_time = false;         // likewise
  // The field that tells a grid's seconds, where videos are not timed; and these, 0: of the frames chosen.
  std::string seconds_field = "second_per_grid_ts";
  double grid_seconds = 0;
  std::function<void(CanonicalText&)> add_to;  // what all this depends on
};

struct QwenVision {
  PixelSettings pixels;
  PatchShape shape;
  uint64_t min_pixels = 0;  // of images
  uint64_t max_pixels = 0;
  // The size that pictures become; nothing: Qwen2-VL's, within the bounds.
  std::function<absl::StatusOr<ImageSize>(ImageSize)> image_size;
  std::string processor_class;
  std::string vision_begin = "<|vision_start|>";
  std::string vision_end = "<|vision_end|>";
  std::string image_token = "<|image_pad|>";
  std::string video_token = "<|video_pad|>";
  std::optional<QwenVideo> video;                         // nothing: video is refused
  std::string no_video = "its rules are not known here";  // why

  uint32_t factor() const { return shape.patch * shape.merge; }
  void RefuseVideos(const absl::Status& why) { no_video = std::string(why.message()); }
};

// A class of image processors of transformers: what it takes where its file says nothing, and whether
// min_pixels and max_pixels stand above size there, or mean nothing.
struct QwenImageClass {
  std::string_view processor_class;
  uint64_t min_pixels = 0;
  uint64_t max_pixels = 0;
  bool pixel_keys = false;
};
inline constexpr QwenImageClass kQwen2VlImages = {"Qwen2VLProcessor", 56 * 56, 28 * 28 * 1280,
                                                  /*pixel_keys=*/true};

// The image processor's keys, and its class's defaults.
absl::StatusOr<QwenVision> ReadQwenVision(ConfigFile& config, const ProcessorSpec& spec,
                                          const QwenImageClass& usual = kQwen2VlImages);

// A class of video processors of transformers: what it takes where its file says nothing, and whether
// min_pixels and max_pixels stand above size there, or mean nothing.
struct QwenVideoClass {
  std::string_view name;
  uint32_t patch = 0;
  std::array<double, 3> mean{};
  std::array<double, 3> std{};
  bool pixel_keys = false;
};
inline constexpr QwenVideoClass kQwen2VlVideo = {"Qwen2VLVideoProcessor", 14, kClipMean, kClipStd,
                                                 /*pixel_keys=*/true};
inline constexpr QwenVideoClass kQwen3VlVideo = {"Qwen3VLVideoProcessor", 16, kHalves, kHalves,
                                                 /*pixel_keys=*/false};

// The configuration of the folder's video processor, which is a `usual`. Nothing, and why, where there is
// none (then transformers loads the image processor alone) or transformers takes another class: videos are
// refused.
absl::StatusOr<std::optional<ConfigFile>> FindQwenVideo(const std::string& folder,
                                                        const QwenVideoClass& usual, QwenVision& vision);

// What a video processor's file says of frames; 0: nothing.
struct QwenVideoFile {
  PixelSettings pixels;
  uint64_t min_pixels = 0;
  uint64_t max_pixels = 0;
  double fps = 0;
  uint32_t min_frames = 0;
  uint32_t max_frames = 0;
  uint32_t num_frames = 0;
  bool cap_pixels_per_frame = false;
  uint32_t max_video_tokens = 0;
};

// The video processor's keys, which are the image processor's and some of its own; `usual` where they are
// missing. Patches must be the same in both, since there is one field of positions and one encoder:
// InvalidArgument.
absl::StatusOr<QwenVideoFile> ReadQwenVideoFile(ConfigFile& config, const QwenVision& vision,
                                                const ProcessorSpec& spec, const QwenVideoClass& usual);

// Each value is the job's, else the file's, else the default. InvalidArgument where a bound of the job
// contradicts the other bound.
absl::StatusOr<FrameChoice> FramesOf(FrameRule rule, const ProcessorSpec& spec, const QwenVideoFile& file,
                                     uint32_t multiple);

std::unique_ptr<MediaFamily> MakeQwenVision(QwenVision settings, const Limits& limits);

// "<0.5 seconds>": the mean of the times of the first and the last of the frames that share a grid. `fps` is
// the video's.
std::string TimeOf(std::span<const uint32_t> group, double fps);

}  // namespace evenkeel::preprocess
