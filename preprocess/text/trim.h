// Removes the white space that Python's `str.strip` removes, at one end of a text. Bytes that are not valid
// UTF-8 are not white space. Pure functions; the result is a view of `text`.
#pragma once

#include <string_view>

namespace evenkeel::preprocess {

std::string_view WithoutLeading(std::string_view text);
std::string_view WithoutTrailing(std::string_view text);

}  // namespace evenkeel::preprocess
