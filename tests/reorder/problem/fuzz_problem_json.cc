// Any text as a problem of `evenkeel solve`: a solution, or an error that says what is wrong with it. Numbers
// of more than three digits are left out: they make problems large, not damaged.
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "reorder/problem/solve.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  size_t digits = 0;
  for (const char c : text) {
    if (digits != 0 && (c == 'e' || c == 'E')) return 0;
    digits = std::isdigit(static_cast<unsigned char>(c)) != 0 ? digits + 1 : 0;
    if (digits > 3) return 0;
  }
  const auto solved = evenkeel::reorder::SolveJson(text);
  if (solved.ok()) return 0;
  if (absl::IsInvalidArgument(solved.status()) || absl::IsResourceExhausted(solved.status())) return 0;
  std::cerr << solved.status() << "\n";
  std::abort();
}
