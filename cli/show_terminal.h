// A sample as lines for a terminal: pictures by half blocks, waveforms, text with its tokens and labels. All text of the data passes
// through Visible.
//
// Thread safety: a function without state.
#pragma once

#include <cstdint>
#include <string>

#include "cli/shown_sample.h"

namespace evenkeel::cli {

struct TerminalStyle {
  bool colour = false;  // otherwise pictures are described only
  uint32_t width = 80;  // columns
};

std::string SampleLines(const ShownSample& sample, const TerminalStyle& style);

// "image jpg 640x480", "audio wav 2.50 s, 16000 Hz": what is known of an item before it is decoded.
std::string DescribeItem(const ShownItem& item);
// "vision: rank 3, microbatch 0, position 2".
std::string DescribePlace(const ShownPlace& place);

}  // namespace evenkeel::cli
