// Audio through FFmpeg and soxr: facts from one pass over the packets, samples as mono f32 at 16 or 48 kHz.
//
// Codecs are a tested list whose decoders give the same bytes on every CPU; others are Unimplemented.
// Channels are averaged in f32, in their order: ((c0 + c1) + ...) / n. Resampling is soxr HQ, as librosa's
// default.
//
// Thread safety: free functions without state; no threads of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/words.h"

struct soxr;

namespace evenkeel::preprocess {

inline constexpr uint32_t kSpeechRate = 16000;  // Hz

// The facts of a clip: rate, channels, samples per channel, duration. Errors of Measurer::Probe.
absl::StatusOr<MediaFacts> ProbeAudio(std::string_view suffix, std::span<const std::byte> bytes,
                                      const Limits& limits);

// The same of the audio stream in a video; nullopt: it has none.
absl::StatusOr<std::optional<MediaFacts>> ProbeAudioOfVideo(std::string_view suffix,
                                                            std::span<const std::byte> bytes,
                                                            const Limits& limits);

// Number of samples of the clip at `rate`: ceil(num_samples * rate / sample_rate), computed from the facts.
uint64_t SpeechSamples(const MediaFacts& facts, uint32_t rate = kSpeechRate);

struct DecodedAudio {
  // min(SpeechSamples(facts, rate), max_samples), mono, at `rate`. The thread's, until its next DecodeSpeech.
  std::span<const float> samples;
  uint64_t filled = 0;   // samples at the clip's own rate that the decode did not deliver: zeros
  uint64_t trimmed = 0;  // ... that it delivered in addition to the facts: dropped
};
// The first `max_samples` samples at `rate`: 16 or 48 kHz. DataLoss: nothing can be decoded, or rate or channels differ
// from the facts.
absl::StatusOr<DecodedAudio> DecodeSpeech(std::string_view suffix, std::span<const std::byte> bytes,
                                          const Limits& limits, const MediaFacts& facts, uint64_t max_samples,
                                          uint32_t rate = kSpeechRate);

// soxr.cc: resamples a clip to 16 or 48 kHz in pieces. The result does not depend on the sizes of the pieces.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(auto resampler, SpeechResampler::Start(44100, out));
//     for (std::span<const float> block : blocks) EVENKEEL_RETURN_IF_ERROR(resampler.Feed(block));
//     EVENKEEL_RETURN_IF_ERROR(resampler.Finish());  // `out` is full, with zeros if the filter delivers fewer
class SpeechResampler {
 public:
  // Writes to `out` from its begin; further samples are dropped. Unimplemented: an untested
  // rate.
  static absl::StatusOr<SpeechResampler> Start(uint32_t rate, std::span<float> out,
                                               uint32_t to = kSpeechRate);
  absl::Status Feed(std::span<const float> in);
  absl::Status Finish();

 private:
  struct Free {
    void operator()(soxr* resampler) const;
  };
  std::unique_ptr<soxr, Free> soxr_;  // null: the clip already has this rate
  std::span<float> out_;              // what is not written yet
};
// Whether clips with this sample rate are accepted.
bool CanResample(uint32_t rate);

}  // namespace evenkeel::preprocess
