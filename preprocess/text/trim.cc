// Finds the white space that Python's `str.strip` removes.
#include "preprocess/text/trim.h"

#include <algorithm>
#include <array>

namespace evenkeel::preprocess {
namespace {

// Every character of str.isspace(), in UTF-8.
constexpr std::array<std::string_view, 29> kSpaces = {
    "\t",           "\n",           "\v",           "\f",           "\r",
    "\x1c",         "\x1d",         "\x1e",         "\x1f",         " ",
    "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
    "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
    "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
    "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};

}  // namespace

std::string_view WithoutLeading(std::string_view text) {
  auto leads = [&](std::string_view space) { return text.starts_with(space); };
  for (auto it = kSpaces.begin();
       (it = std::find_if(kSpaces.begin(), kSpaces.end(), leads)) != kSpaces.end();)
    text.remove_prefix(it->size());
  return text;
}

std::string_view WithoutTrailing(std::string_view text) {
  auto ends = [&](std::string_view space) { return text.ends_with(space); };
  for (auto it = kSpaces.begin(); (it = std::find_if(kSpaces.begin(), kSpaces.end(), ends)) != kSpaces.end();)
    text.remove_suffix(it->size());
  return text;
}

}  // namespace evenkeel::preprocess
