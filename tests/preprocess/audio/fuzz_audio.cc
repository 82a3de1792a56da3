// Any bytes as each kind of audio (the first byte chooses): an error of a type, or samples.
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

#include "preprocess/audio/audio.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static constexpr const char* kSuffixes[] = {"wav", "flac", "mp3", "m4a", "aac",
                                              "ac3", "ogg",  "mka", "avi", "aiff"};
  if (size == 0) return 0;
  const char* suffix = kSuffixes[data[0] % std::size(kSuffixes)];
  std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  evenkeel::Limits limits;
  limits.max_audio_seconds = 60;
  auto facts = evenkeel::preprocess::ProbeAudio(suffix, bytes, limits);
  if (facts.ok()) (void)evenkeel::preprocess::DecodeSpeech(suffix, bytes, limits, *facts, 480000);
  return 0;
}
