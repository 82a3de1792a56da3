// What the Qwen-VL families share: pictures and videos as flattened patches on a grid. qwen2_vl.cc and
// qwen3_vl.cc define the sizes of pictures and frames, and how a video's times are given.
//
// Thread safety: as MediaFamily.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "preprocess/families/audio_in_video.h"
#include "preprocess/families/family.h"
#include "preprocess/families/patches.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/video/frame_rules.h"

namespace evenkeel::preprocess {

struct QwenVideo {
  PixelSettings pixels;             // resampling and normalization of frames
  std::optional<PatchShape> shape;  // of frames; nullopt: as of pictures
  uint32_t frames_per_token =
      1;  // grids in time that the model merges into one token; the last one is repeated
  FrameChoice frames;
  // The size that frames of `native` pixels get if `num_frames` are chosen. InvalidArgument: the video is
  // refused.
  std::function<absl::StatusOr<ImageSize>(ImageSize native, uint32_t num_frames)> size;
  bool in_floats = false;  // frames are resized as by fetch_video
  // Qwen3-VL, GLM-4V: every grid in time is a run of its own, with its time as text before it. Otherwise all
  // grids are one run, and second_per_grid_ts is a field.
  bool timed = false;
  bool time_follows = false;  // the time is after its run
  std::string between;        // text between a run and the time of the next
  // The text of a grid's time, from the numbers of its frames and the video's frames per second.
  std::string (*time)(std::span<const uint32_t> group, double fps) = nullptr;
  std::optional<MediumStyle> style;  // of videos; nullopt: as pictures, with the video token
  bool upright = false;              // rotation metadata is applied to frames
  uint32_t tokens_per_second = 0;    // positions, see SequenceStyle
  bool after_time = false;           // likewise
  // If videos are not timed: the name of the field with a grid's seconds (empty: there is none), and its value; 0: from
  // the chosen frames.
  std::string seconds_field = "second_per_grid_ts";
  double grid_seconds = 0;
  std::string merge_field;            // the name of a field with a video's merge size; empty: none
  std::optional<AudioInVideo> audio;  // how a video stands with its audio; then grid_seconds is given
};

struct QwenVision {
  PixelSettings pixels;
  PatchShape shape;
  uint64_t min_pixels = 0;  // bounds of images
  uint64_t max_pixels = 0;
  // The size of a resized picture; empty: Qwen2-VL's rule, within the bounds.
  std::function<absl::StatusOr<ImageSize>(ImageSize)> image_size;
  std::string processor_class;
  std::string vision_begin = "<|vision_start|>";
  std::string vision_end = "<|vision_end|>";
  std::string image_token = "<|image_pad|>";
  std::string video_token = "<|video_pad|>";
  bool mrope = true;               // positions on the grid
  std::string merge_field;         // the name of a field with a picture's merge size; empty: none
  std::optional<QwenVideo> video;  // nullopt: videos are refused
  std::string no_video = "its rules are not known here";  // the reason

  uint32_t factor() const { return shape.patch * shape.merge; }
  void RefuseVideos(const absl::Status& why) { no_video = std::string(why.message()); }
};

// One of transformers' image processor classes: its defaults, and whether min_pixels and max_pixels next to
// "size" override it, or are ignored.
struct QwenImageClass {
  std::string_view processor_class;
  uint64_t min_pixels = 0;
  uint64_t max_pixels = 0;
  bool pixel_keys = false;
  uint32_t frames = 2;  // temporal_patch_size
  uint32_t merge = 2;
  std::array<double, 3> mean = kClipMean;
  std::array<double, 3> std = kClipStd;
};
inline constexpr QwenImageClass kQwen2VlImages = {"Qwen2VLProcessor", 56 * 56, 28 * 28 * 1280,
                                                  /*pixel_keys=*/true};

// Reads the image processor's keys; `usual` has the defaults.
absl::StatusOr<QwenVision> ReadQwenVision(ConfigFile& config, const ProcessorSpec& spec,
                                          const QwenImageClass& usual = kQwen2VlImages);

// One of transformers' video processor classes: its defaults, and whether min_pixels and max_pixels next to
// "size" override it, or are ignored.
struct QwenVideoClass {
  std::string_view name;
  uint32_t patch = 0;
  std::array<double, 3> mean{};
  std::array<double, 3> std{};
  uint64_t min_pixels = 0;  // Qwen2-VL: of a frame; Qwen3-VL: of all frames together
  uint64_t max_pixels = 0;
  uint32_t max_tokens = 0;  // used with cap_pixels_per_frame
  bool pixel_keys = false;
  bool bounds_frames = true;  // it has min_frames, max_frames and num_frames; else they are ignored
  bool has_fps = true;
  uint32_t frames = 2;  // temporal_patch_size
  uint32_t merge = 2;
};
inline constexpr QwenVideoClass kQwen2VlVideo = {
    "Qwen2VLVideoProcessor", 14,     kClipMean,          kClipStd, 128 * 28 * 28,
    28 * 28 * 768,           128000, /*pixel_keys=*/true};
inline constexpr QwenVideoClass kQwen3VlVideo = {
    "Qwen3VLVideoProcessor", 16, kHalves, kHalves, 128 * 32 * 32, 32 * 32 * 768, 768, /*pixel_keys=*/false};

// The configuration of the folder's video processor, which must be of the class `usual`. nullopt, with the
// reason in `vision`, if there is none (then transformers loads the image processor alone) or transformers
// would use another class: then videos are refused.
absl::StatusOr<std::optional<ConfigFile>> FindQwenVideo(const CheckpointFolder& checkpoint,
                                                        const QwenVideoClass& usual, QwenVision& vision);

// The values of a video processor's file, or its class's; of the numbers of frames and their rate 0: absent.
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

// Reads the video processor's keys, which are the image processor's and some of its own; `usual` has the
// defaults. InvalidArgument: its patches differ from the image processor's, which is not implemented since
// both share one encoder and one field of positions.
absl::StatusOr<QwenVideoFile> ReadQwenVideoFile(ConfigFile& config, const QwenVision& vision,
                                                const ProcessorSpec& spec, const QwenVideoClass& usual);

// Precedence of each value: the job's, the file's, the default. InvalidArgument: a bound of the job
// contradicts the other bound.
absl::StatusOr<FrameChoice> FramesOf(FrameRule rule, const ProcessorSpec& spec, const QwenVideoFile& file,
                                     uint32_t multiple);

std::unique_ptr<MediaFamily> MakeQwenVision(QwenVision settings, const Limits& limits);

// "<0.5 seconds>": the mean of the times of the first and the last frame of a grid. `fps`: the video's frame
// rate.
std::string TimeOf(std::span<const uint32_t> group, double fps);

}  // namespace evenkeel::preprocess
