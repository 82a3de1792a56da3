// Qwen2.5-Omni and Qwen3-Omni: clips, pictures and videos, also with their audio (processor.use_audio_in_video).
//
// The rules are those of transformers' models/{qwen2_5_omni,qwen3_omni_moe}/processing_*.py. Qwen2.5-Omni
// pads clips to the extractor's chunk_length (300 s) and masks; Qwen3-Omni pads to the longest clip of a call
// and cuts nothing. Here every clip is processed as in a call of its own.
// Pictures and videos are Qwen2-VL's, with frames of 128 to 768 tokens, whatever the video file has;
// positions in time count seconds (get_rope_index of their modeling_*.py).
#include "preprocess/families/qwen_omni.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/qwen2_audio.h"
#include "preprocess/families/qwen2_vl.h"
#include "preprocess/families/speech.h"

namespace evenkeel::preprocess {
namespace {

// Settings of positions in time; the models' defaults if config.json has none.
struct OmniTimes {
  uint32_t positions_per_second = 0;
  bool fractions = false;  // positions are truncated products; else the float products themselves
  std::string audio_begin, audio_end;
  bool in_chunks = false;  // of two seconds: AudioInVideo
};

constexpr uint32_t kChunkSeconds = 2;

// The processors place a video's audio by their own constants; the positions are the model's, by its configuration.
absl::StatusOr<AudioInVideo> ReadAudioInVideo(const OmniTimes& times, uint32_t of_model, ConfigFile& model) {
  if (of_model != times.positions_per_second) {
    return model.Error(
        "thinker_config.position_id_per_seconds",
        absl::StrCat("is ", of_model, ", and with processor.use_audio_in_video only ",
                     times.positions_per_second, " is implemented, by which the processor places the audio"));
  }
  if (times.in_chunks) {
    const uint64_t seconds = model.UintIn("thinker_config", "seconds_per_chunk", kChunkSeconds, 1, 1000);
    if (seconds != kChunkSeconds) {
      return model.Error("thinker_config.seconds_per_chunk",
                         absl::StrCat("is ", seconds, ", and with processor.use_audio_in_video only ",
                                      kChunkSeconds, " is implemented, as the processor has it"));
    }
  }
  return AudioInVideo{.begin = times.audio_begin,
                      .end = times.audio_end,
                      .positions_per_second = static_cast<double>(of_model),
                      .chunk_positions = times.in_chunks ? of_model * kChunkSeconds : 0,
                      .shares_end_positions = times.in_chunks};
}

MadeFamily MakeOmniVision(QwenVision vision, const OmniTimes& times, const FamilySource& source) {
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  const uint64_t token_pixels = uint64_t{vision.factor()} * vision.factor();
  EVENKEEL_RETURN_IF_ERROR(TakeQwen2Videos(source, {128 * token_pixels, 768 * token_pixels}, vision));
  if (!vision.video) return MakeQwenVision(std::move(vision), source.limits);
  QwenVideo& video = *vision.video;
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(source.checkpoint));
  video.tokens_per_second = static_cast<uint32_t>(
      model.UintIn("thinker_config", "position_id_per_seconds", times.positions_per_second, 1, 1000));
  if (source.spec.use_audio_in_video) {
    EVENKEEL_ASSIGN_OR_RETURN(video.audio, ReadAudioInVideo(times, video.tokens_per_second, model));
  }
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  video.after_time = true;
  video.seconds_field = "video_second_per_grid";
  video.grid_seconds = vision.shape.frames / video.frames.fps;
  if (!times.fractions && video.grid_seconds != std::floor(video.grid_seconds)) {
    return absl::InvalidArgumentError(
        absl::StrCat("processor.fps: ", video.frames.fps, " makes grids of ", video.grid_seconds,
                     " seconds, and this model's positions fractions; only whole seconds (2, 1, 0.5 frames a "
                     "second) are implemented"));
  }
  return MakeQwenVision(std::move(vision), source.limits);
}

}  // namespace

uint32_t Qwen3OmniTokens(uint32_t frames) {
  constexpr uint32_t kChunk = 100;
  constexpr int64_t kTokensOfChunk = 13;
  int64_t rest = frames % kChunk;
  for (int halving = 0; halving < 3; ++halving) rest = FloorDiv(rest - 1, 2) + 1;
  return static_cast<uint32_t>(rest + frames / kChunk * kTokensOfChunk);
}

void SetQwen3Clips(SpeechSettings& settings) {
  settings.shape = ClipShape::kUnpadded;
  settings.padded_samples = 0;
  settings.tokens = Qwen3OmniTokens;
  settings.encodes_padding = false;
  settings.style = {Medium::kAudio, "<|audio_start|>", "<|audio_pad|>", "<|audio_end|>", /*mrope=*/false};
  settings.style->template_has_ends = true;
}

MadeFamily MakeQwen2Omni(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(SpeechSettings settings, ReadSpeechSettings(config));
  SetQwen2Clips(settings);
  settings.encodes_padding = false;
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  return MakeSpeech(std::move(settings), source.limits);
}

MadeFamily MakeQwen3Omni(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(SpeechSettings settings, ReadSpeechSettings(config));
  SetQwen3Clips(settings);
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  return MakeSpeech(std::move(settings), source.limits);
}

MadeFamily MakeQwen2OmniVision(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(QwenVision vision, ReadQwenVision(config, source.spec));
  vision.vision_begin = "<|vision_bos|>";
  vision.vision_end = "<|vision_eos|>";
  vision.image_token = "<|IMAGE|>";
  vision.video_token = "<|VIDEO|>";
  const OmniTimes times{.positions_per_second = 25,
                        .fractions = true,
                        .audio_begin = "<|audio_bos|>",
                        .audio_end = "<|audio_eos|>",
                        .in_chunks = true};
  return MakeOmniVision(std::move(vision), times, source);
}

MadeFamily MakeQwen3OmniVision(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(QwenVision vision, ReadQwenVision(config, source.spec));
  const OmniTimes times{
      .positions_per_second = 13, .audio_begin = "<|audio_start|>", .audio_end = "<|audio_end|>"};
  return MakeOmniVision(std::move(vision), times, source);
}

}  // namespace evenkeel::preprocess
