// Names of media, the facts of a video's audio, and the rules for names of phases.
#include "core/words.h"

#include <algorithm>

namespace evenkeel {

std::string_view MediumName(Medium medium) {
  constexpr std::string_view kNames[] = {"text", "image", "video", "audio"};
  return kNames[static_cast<size_t>(medium)];
}

bool IsPhaseName(std::string_view name) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto fits = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-'; };
  return !name.empty() && name.size() <= Phase::kMaxName && is_letter(name.front()) &&
         std::all_of(name.begin(), name.end(), fits);
}

MediaFacts AudioOf(const MediaFacts& video) {
  MediaFacts audio{.medium = Medium::kAudio};
  audio.sample_rate = video.sample_rate;
  audio.channels = video.channels;
  audio.num_samples = video.num_samples;
  audio.duration_us = (video.num_samples * 1000000 + video.sample_rate / 2) / video.sample_rate;
  return audio;
}

std::string MediaNames(const Phase& phase) {
  std::string names;
  for (Medium medium : kItemMedia) {
    if (!phase.takes(medium)) continue;
    if (!names.empty()) names += ',';
    names += MediumName(medium);
  }
  return names;
}

}  // namespace evenkeel
