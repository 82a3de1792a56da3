// Structured logs for machines to read: one JSON object a line on stderr.
//
// Example:
//     LogEvent(LogLevel::kWarning, "item_invalid", {{"sample", name}, {"reason", "DATA_LOSS"}});
//     // {"time":"2026-01-31T12:00:00.123Z","level":"warning","event":"item_invalid","sample":"...", ...}
//
// It has no metrics (metrics.h) and nothing that reaches a batch.
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

// A JSON value: text (made valid UTF-8), number or boolean.
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

// Appends `text` as a JSON string with its quotes. Bytes that are not valid UTF-8 become U+FFFD.
void AppendJsonString(std::string_view text, std::string& out);

// The line without its end of line. `time_ms`: since the epoch.
std::string FormatEvent(int64_t time_ms, LogLevel level, std::string_view event,
                        std::initializer_list<LogField> fields);

// Before StartLogWriter, returns after the line was written. After it, never waits for the reader of the log,
// except for at most 200 ms after an error, because the process may be about to end.
void LogEvent(LogLevel level, std::string_view event, std::initializer_list<LogField> fields);

// From now on lines wait in memory (at most 1 MiB) and a thread writes them. Lines that do not fit are
// dropped and counted; a line log_lines_dropped gives their number once there is room. Call it after all
// forks.
void StartLogWriter();
// Waits until all lines are written. False: lines are still waiting after `timeout`. True at once without a
// writer. Call it before the process ends.
bool FlushLog(absl::Duration timeout);
uint64_t LogLinesDropped();
// Events below `level` are dropped. The default is kInfo.
void SetLogLevel(LogLevel level);

}  // namespace evenkeel::telemetry
