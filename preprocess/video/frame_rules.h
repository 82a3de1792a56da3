// Which frames of a video are used: first how many, from the facts alone, then which.
//
// Four values of processor.frame_rule name the rules; `transformers` depends on the family:
//   qwen_vl_utils  smart_nframes and linspace of qwen-vl-utils (vision_process.py)
//   fetch_video    the same frames; the Qwen-VL families also resize them as its fetch_video does
//   transformers   the family's own video processor; the last frame replaces one beyond the end
//                  (Qwen2-VL: sample_frames of video_processing_qwen2_vl.py, torch.arange in f32;
//                  Qwen3-VL: that of video_processing_qwen3_vl.py, np.linspace; InternVL: that of
//                  video_processing_internvl.py, torch.arange with a first frame of its own; the default:
//                  default_sample_indices_fn of video_utils.py, in integers;
//                  GLM-4.1V and GLM-4.6V: those of video_processing_{glm4v,glm46v}.py, by times in f64;
//                  SmolVLM: that of video_processing_smolvlm.py, np.linspace without repetitions;
//                  Ernie 4.5-VL: that of video_processing_ernie4_5_vl_moe.py, torch.arange of a fraction of frames;
//                  Molmo 2: that of video_processing_molmo2.py, torch.arange;
//                  MiniCPM-V 4.6: that of video_processing_minicpmv4_6.py, the first frame of each second)
//   uniform        ours: the frames shown at the middles of equal spans of the video's time
// A processor that does not sample uses every frame; that rule has no value in the job. All rules but
// `uniform` count frames, as their sources do, and so treat a variable frame rate as its average.
//
// Example:
//     FrameChoice choice{.rule = FrameRule::kQwenVlUtils, .fps = 2, .min_frames = 4, .max_frames = 768};
//     EVENKEEL_ASSIGN_OR_RETURN(uint32_t count, NumChosenFrames(choice, facts));
//     ChooseFrames(choice, facts, count, /*times=*/{}, chosen);  // count of them
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/words.h"

namespace evenkeel::preprocess {

enum class FrameRule : uint8_t {
  kQwenVlUtils,
  kFetchVideo,
  kQwen2VlProcessor,
  kQwen3VlProcessor,
  kInternVlProcessor,
  kDefaultProcessor,
  kGlm4vProcessor,
  kGlm46vProcessor,
  kSmolVlmProcessor,
  kErnie45VlProcessor,
  kMolmo2Processor,
  kMiniCpmProcessor,
  kUniform,
  kAll
};

// The rule for a job's value; `transformers` and `usual` are the family's own and default rules. InvalidArgument: an
// unknown value, or fetch_video where frames are not resized that way.
absl::StatusOr<FrameRule> FrameRuleOf(std::string_view word, FrameRule transformers, FrameRule usual,
                                      bool has_fetch_video = false);
std::string_view FrameRuleName(FrameRule rule);  // distinct names, for digests

struct FrameChoice {
  FrameRule rule = FrameRule::kQwenVlUtils;
  // Wanted frames per second of video; 0 with kErnie45VlProcessor: all; with kMolmo2Processor the maximum, 0: none.
  double fps = 2;
  uint32_t min_frames = 4;    // lower bound, if the video has as many
  uint32_t max_frames = 768;  // upper bound
  uint32_t multiple = 2;      // frames per temporal patch; the first two rules round down to a multiple of it
  // kInternVlProcessor, kQwen2VlProcessor, kErnie45VlProcessor and kDefaultProcessor: this exact number; 0: by fps.
  // kSmolVlmProcessor, kMolmo2Processor, kMiniCpmProcessor: the maximum, not 0.
  uint32_t num_frames = 0;
  double max_duration = 300;  // kGlm4vProcessor: seconds; of longer videos as many frames as of this length
  // kInternVlProcessor, which ignores the bounds, as kDefaultProcessor, kSmolVlmProcessor and the two of GLM do:
  std::optional<double> first = {};  // the first frame; nullopt: the middle of the first span
};

// The number of frames, at least one. Odd counts of a rule that pads stay odd here. InvalidArgument: no
// frame, fewer than num_frames, or a video without a rate.
absl::StatusOr<uint32_t> NumChosenFrames(const FrameChoice& choice, const MediaFacts& facts);

// Fills `chosen` with the numbers of `count` (from NumChosenFrames) frames, ascending, below
// facts.num_frames; a frame may occur twice. `times`: when each frame is shown, ascending, and when the last
// one ends, in any unit; only kUniform uses it, and it is empty for a constant rate.
void ChooseFrames(const FrameChoice& choice, const MediaFacts& facts, uint32_t count,
                  std::span<const int64_t> times, std::vector<uint32_t>& chosen);

}  // namespace evenkeel::preprocess
