// How the placeholders of a video and those of its audio alternate in a sequence.
//
// Qwen2.5-Omni (`replace_video_with_audio_token` of transformers' models/qwen2_5_omni/processing_qwen2_5_omni.py) cuts both
// into chunks of the same time, and writes a chunk of the video before that of the audio. Qwen3-Omni
// (models/qwen3_omni_moe/processing_qwen3_omni_moe.py) writes every grid of the video at its time, between the tokens of the
// audio. Times are counted in positions, of which the audio has one a token.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "preprocess/families/family.h"

namespace evenkeel::preprocess {

struct AudioInVideo {
  std::string begin;  // tokens around the placeholders of both: "<|audio_start|>"
  std::string end;
  double positions_per_second = 0;  // positive
  // The positions of a chunk; 0: no chunks, grids stand at their times.
  uint32_t chunk_positions = 0;
  // Qwen2.5-Omni: the video's begin token and the audio's have one position, and so have the two end tokens.
  bool shares_end_positions = false;
};

// Appends the runs of a video with the grid `grid`, each of whose grids in time has `grid_rows` placeholders, and of its audio
// of `audio_rows`. `grid_seconds`: the time between grids. InvalidArgument: rounding puts a grid into another chunk for
// the model's positions than for its processor's placeholders.
absl::Status InterleaveAudio(const AudioInVideo& rule, const VisionGrid& grid, uint32_t grid_rows,
                             double grid_seconds, uint32_t audio_rows, std::vector<PlaceholderRun>& runs);

}  // namespace evenkeel::preprocess
