// Which frames of a video are taken: how many, from the facts alone; then which.
//
// Three words of the job name the rules; which rule `transformers` is depends on the family:
//   qwen_vl_utils  what qwen-vl-utils' smart_nframes and linspace give (vision_process.py)
//   transformers   what the family's own video processor gives, the last frame standing for one beyond the
//                  end (Qwen2-VL: sample_frames of video_processing_qwen2_vl.py, torch.arange in f32;
//                  Qwen3-VL: that of video_processing_qwen3_vl.py, np.linspace; InternVL: that of
//                  video_processing_internvl.py, torch.arange from a place of its own)
//   uniform        ours: the frames shown at the middles of equal spans of the video's time
// A processor that samples nothing takes every frame, which no word names.
// All but `uniform` count frames, as their sources do, and so take a variable frame rate for its average.
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
  kQwen2VlProcessor,
  kQwen3VlProcessor,
  kInternVlProcessor,
  kUniform,
  kAll
};

// The rule that a job's word means for a family, whose `transformers` and default rules are given.
// InvalidArgument: another word.
absl::StatusOr<FrameRule> FrameRuleOf(std::string_view word, FrameRule transformers, FrameRule usual);
std::string_view FrameRuleName(FrameRule rule);  // distinct names, for digests

struct FrameChoice {
  FrameRule rule = FrameRule::kQwenVlUtils;
  double fps = 2;             // frames wanted of a second
  uint32_t min_frames = 4;    // at least, where the video has so many
  uint32_t max_frames = 768;  // at most
  uint32_t multiple = 2;      // frames of a temporal patch; the first two rules round down to it
  uint32_t num_frames = 0;    // of kInternVlProcessor and kQwen2VlProcessor: exactly so many; 0: by fps
  // Of kInternVlProcessor, which has no bounds:
  std::optional<double> first;  // frame to begin with; nothing: the middle of the first span
};

// How many frames are taken, at least one. Odd counts of a rule that pads stay odd here.
// InvalidArgument: none, fewer than num_frames asks for, or a video without a rate.
absl::StatusOr<uint32_t> NumChosenFrames(const FrameChoice& choice, const MediaFacts& facts);

// Makes `chosen` the numbers of `count` (of NumChosenFrames) frames, ascending, below facts.num_frames; a
// frame may be taken twice. `times`: when each frame is shown, ascending, and when the last one ends, in any
// unit; used by kUniform only, and empty for a constant rate.
void ChooseFrames(const FrameChoice& choice, const MediaFacts& facts, uint32_t count,
                  std::span<const int64_t> times, std::vector<uint32_t>& chosen);

}  // namespace evenkeel::preprocess
