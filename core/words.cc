// Names of media, and the rules for names of phases.
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
