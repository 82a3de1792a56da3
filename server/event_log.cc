#include "server/event_log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "absl/strings/str_format.h"

namespace evenkeel {
namespace {

std::atomic<LogLevel> lowest_level{LogLevel::kInfo};

std::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "unknown";
}

// Bytes of the UTF-8 sequence that begins `text`; 0 where it is no valid one.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : (lead & 0xF0) == 0xE0        ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;   // overlong
  if (lead == 0xED && byte(1) >= 0xA0) return 0;  // surrogate
  if (lead == 0xF0 && byte(1) < 0x90) return 0;   // overlong
  if (lead == 0xF4 && byte(1) >= 0x90) return 0;  // above U+10FFFF
  return length;
}

}  // namespace

void AppendJsonString(std::string_view text, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const char c = text.front();
    size_t length = SequenceLength(text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint8_t>(c));
    } else if (length == 0) {
      out += "\xEF\xBF\xBD";
      length = 1;
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  out += '"';
}

void LogValue::AppendJson(std::string& out) const {
  if (const auto* text = std::get_if<std::string>(&value_)) {
    AppendJsonString(*text, out);
  } else if (const auto* truth = std::get_if<bool>(&value_)) {
    out += *truth ? "true" : "false";
  } else if (const auto* number = std::get_if<double>(&value_)) {
    // JSON has no infinities and no NaN.
    if (*number - *number != 0) {
      out += "null";
    } else {
      absl::StrAppendFormat(&out, "%.6g", *number);
    }
  } else if (const auto* whole = std::get_if<int64_t>(&value_)) {
    absl::StrAppendFormat(&out, "%d", *whole);
  } else if (const auto* count = std::get_if<uint64_t>(&value_)) {
    absl::StrAppendFormat(&out, "%d", *count);
  }
}

std::string FormatEvent(int64_t time_ms, LogLevel level, std::string_view event,
                        std::initializer_list<LogField> fields) {
  const std::time_t seconds = time_ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::string line =
      absl::StrFormat(R"({"time":"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ","level":)", utc.tm_year + 1900,
                      utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, time_ms % 1000);
  AppendJsonString(LevelName(level), line);
  line += ",\"event\":";
  AppendJsonString(event, line);
  for (const auto& [name, value] : fields) {
    line += ',';
    AppendJsonString(name, line);
    line += ':';
    value.AppendJson(line);
  }
  line += '}';
  return line;
}

void LogEvent(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level < lowest_level.load(std::memory_order_relaxed)) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string line =
      FormatEvent(std::chrono::duration_cast<std::chrono::milliseconds>(now).count(), level, event, fields);
  line += '\n';
  // One write of a locked stream: lines of different threads never mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void SetLogLevel(LogLevel level) { lowest_level.store(level, std::memory_order_relaxed); }

}  // namespace evenkeel
