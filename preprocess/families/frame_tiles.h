// Videos of families whose frames become one tile each, [frames, 3, height, width]. A family defines its
// tokens, and how its file is read; everything else is here.
//
// Thread safety: as MediaFamily.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "preprocess/families/config_file.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/resize/resize.h"
#include "preprocess/video/frame_rules.h"

namespace evenkeel::preprocess {

struct FrameTiles {
  PixelSettings pixels;
  ImageSize tile;        // the size of a frame's result
  bool cropped = false;  // frames are resized to `size`, and the centre of that is the tile
  SideSizes size;
  // Where frames are resized twice: the first size, for frames of `native` pixels. Then `cropped` is false.
  std::function<ImageSize(ImageSize native)> first_size;
  uint32_t tokens_per_frame = 0;  // placeholders per frame
  uint32_t extra_tokens = 0;      // placeholders of a video in addition to its frames'
  uint32_t patches_per_frame = 0;
  uint32_t frames_per_patch = 1;  // consecutive frames that share their patches and placeholders
  FrameChoice frames;
  bool upright = false;  // rotation metadata is applied to frames
  MediumStyle style;     // of videos
  std::string field = "pixel_values_videos";
  // The placeholders of a video, of which `frames` frames are chosen, in the sequence; empty: one run.
  std::function<void(const MediaFacts&, uint32_t frames, std::vector<PlaceholderRun>&)> runs;
};

// What a class of video processors does with a file that does not contain these keys.
struct FrameDefaults {
  bool samples = false;
  uint32_t num_frames = 0;
};

// The frames that a processor of transformers chooses: the values of its file, unless the job has others, as
// a caller of the processor could. `own`: the rule of its class, which has no bounds. Unimplemented: both
// a number and a rate, of which the default rule takes one alone.
absl::StatusOr<FrameChoice> ReadFrameChoice(ConfigFile& config, const ProcessorSpec& spec, FrameRule own,
                                            const FrameDefaults& usual = {});

// InvalidArgument: the job asks for frames as processors without bounds of frames and pixels cannot choose them.
absl::Status CheckAskedFrames(const ProcessorSpec& spec, FrameRule rule);

// Reads the folder's video processor, of the class `name` with the defaults `usual`, which resizes frames to
// one size, or crops their centre, and chooses them by the default rule. `inert`: keys of the image
// processor's file, which may replace its own. Tokens and style are left to the family. NotFound: there is no
// file; Unimplemented: another class, or frames of different sizes.
absl::StatusOr<FrameTiles> ReadFrameTiles(const FamilySource& source, std::string_view name,
                                          const FixedSizeClass& usual,
                                          std::initializer_list<std::string_view> inert);

// The same of a video processor's file, or of another's whose class takes frames, by the job's settings `spec`.
absl::StatusOr<FrameTiles> ReadFrameTilesOf(ConfigFile& config, const FamilySource& source,
                                            const ProcessorSpec& spec, const FixedSizeClass& usual,
                                            std::initializer_list<std::string_view> inert);

// Pictures by the family `pictures`, and videos: pixel_values_videos [frames, 3, height, width]; as u8
// [frames, 3 * height * width]. A video's input_rows are its frames. NotFound or Unimplemented instead of
// `video`: videos are refused with that message. Other errors are returned.
absl::StatusOr<std::unique_ptr<MediaFamily>> MakePicturesAndFrames(std::unique_ptr<MediaFamily> pictures,
                                                                   absl::StatusOr<FrameTiles> video,
                                                                   const Limits& limits);

}  // namespace evenkeel::preprocess
