// Quoted strings in the output for programs. Thread safety: a function without state.
#pragma once

#include <string>
#include <string_view>

#include "telemetry/event_log.h"

namespace evenkeel::cli {

// `text` as a JSON string, which is valid YAML, too. Bytes that are not valid UTF-8 become U+FFFD.
inline std::string Quoted(std::string_view text) {
  std::string out;
  telemetry::AppendJsonString(text, out);
  return out;
}

}  // namespace evenkeel::cli
