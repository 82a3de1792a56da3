// Samples as one self-contained HTML page: no script, no address, nothing is loaded. All text of the data is escaped.
//
// Thread safety: a function without state.
#pragma once

#include <span>
#include <string>

#include "cli/shown_sample.h"

namespace evenkeel::cli {

// `title`: of the page, for example "step 3 of photos". `note`: a line below it; empty: none.
std::string ShowPage(const std::string& title, const std::string& note, std::span<const ShownSample> samples);

}  // namespace evenkeel::cli
