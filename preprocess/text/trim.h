// White space at the ends of a text, as `str.strip` of Python takes it away. Bytes that are not UTF-8 are
// none. Pure functions; what they return is a view of `text`.
#pragma once

#include <string_view>

namespace evenkeel::preprocess {

std::string_view WithoutLeading(std::string_view text);
std::string_view WithoutTrailing(std::string_view text);

}  // namespace evenkeel::preprocess
