#include "server/event_log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "absl/strings/str_format.h"
#include "core/utf8.h"

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

void AppendEscaped(char c, std::string& out) {
  if (c == '"' || c == '\\') {
    out += {'\\', c};
  } else if (c == '\n') {
    out += "\\n";
  } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
    absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint8_t>(c));
  } else {
    out += c;
  }
}

}  // namespace

void AppendJsonString(std::string_view text, std::string& out) {
  out += '"';
  while (!text.empty()) {
    const size_t good = ValidUtf8Prefix(text);
    for (const char c : text.substr(0, good)) AppendEscaped(c, out);
    text.remove_prefix(good);
    if (text.empty()) break;
    out += "\xEF\xBF\xBD";
    text.remove_prefix(1);
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
