// SmolVLM: what is written around the frames of videos.
#pragma once

#include <cstdint>
#include <string>

namespace evenkeel::preprocess {

// A number in English words, as the package num2words writes it: "one thousand and twenty-one".
std::string NumberInWords(uint32_t number);

// Whole seconds as Python's timedelta writes them: "0:01:05", "1 day, 2:00:00".
std::string DurationText(uint64_t seconds);

}  // namespace evenkeel::preprocess
