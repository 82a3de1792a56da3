// Structured logs: one JSON object a line on stderr, for machines first.
//
// Example:
//     LogEvent(LogLevel::kWarning, "item_invalid", {{"sample", name}, {"reason", "DATA_LOSS"}});
//     // {"time":"2026-01-31T12:00:00.123Z","level":"warning","event":"item_invalid","sample":"...", ...}
//
// It is not: metrics (metrics.h), or anything that reaches a batch.
// Thread safety: lines never mix; all functions may be called from many threads.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "absl/time/time.h"

namespace evenkeel::telemetry {

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// A JSON value: text (made valid UTF-8), number or truth.
class LogValue {
 public:
  LogValue(const char* text) : value_(std::string(text)) {}             // NOLINT(google-explicit-constructor)
  LogValue(std::string text) : value_(std::move(text)) {}               // NOLINT(google-explicit-constructor)
  LogValue(std::string_view text) : value_(std::string(text)) {}        // NOLINT(google-explicit-constructor)
  LogValue(bool truth) : value_(truth) {}                               // NOLINT(google-explicit-constructor)
  LogValue(double number) : value_(number) {}                           // NOLINT(google-explicit-constructor)
  LogValue(int number) : value_(static_cast<int64_t>(number)) {}        // NOLINT(google-explicit-constructor)
  LogValue(int64_t number) : value_(number) {}                          // NOLINT(google-explicit-constructor)
  LogValue(uint32_t number) : value_(static_cast<uint64_t>(number)) {}  // NOLINT(google-explicit-constructor)
  LogValue(uint64_t number) : value_(number) {}                         // NOLINT(google-explicit-constructor)

  void AppendJson(std::string& out) const;

 private:
  std::variant<std::string, bool, double, int64_t, uint64_t> value_;
};

using LogField = std::pair<std::string_view, LogValue>;

// Appends `text` as a JSON string with its quotes. Bytes that are no part of valid UTF-8 become U+FFFD.
void AppendJsonString(std::string_view text, std::string& out);

// Without the end of line. `time_ms`: since the epoch.
std::string FormatEvent(int64_t time_ms, LogLevel level, std::string_view event,
                        std::initializer_list<LogField> fields);

// Before StartLogWriter the line is written when it returns. After it, it never waits for who reads the log,
// but for at most 200 ms where an error is logged: the process may be about to end.
void LogEvent(LogLevel level, std::string_view event, std::initializer_list<LogField> fields);

// From now on lines wait in memory, 1 MiB at most, and a thread of their own writes them. What does not fit
// is dropped and counted, and a line log_lines_dropped says how many, once there is room. Not before
// processes are forked.
void StartLogWriter();
// False: lines are still waiting after `timeout`. True at once without a writer. Call it before the process
// ends.
bool FlushLog(absl::Duration timeout);
uint64_t LogLinesDropped();
// Events below `level` are dropped; kInfo at start.
void SetLogLevel(LogLevel level);

}  // namespace evenkeel::telemetry
