// The speech of Gemma 3n and Gemma 4, whose extractors may share a file with the image processors.
#pragma once

#include "preprocess/families/config_file.h"

namespace evenkeel::preprocess {

// For the families of pictures: the extractors' keys have no effect there.
void IgnoreGemmaSpeech(ConfigFile& config);

}  // namespace evenkeel::preprocess
