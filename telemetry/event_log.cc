// Formats log lines, and writes them from a thread of its own once StartLogWriter was called.
#include "telemetry/event_log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <ctime>
#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/annotated_mutex.h"
#include "core/steady_time.h"
#include "core/utf8.h"

namespace evenkeel::telemetry {
namespace {

std::atomic<LogLevel> lowest_level{LogLevel::kInfo};

constexpr size_t kMaxWaitingBytes = 1 << 20;
constexpr absl::Duration kErrorPatience = absl::Milliseconds(200);
constexpr int kStuckMilliseconds = 200;

// Takes lines from all threads and writes them from one thread, so that a slow reader of the log blocks no
// other thread.
class LogWriter {
 public:
  LogWriter() {
    std::thread([this] { Run(); }).detach();
  }

  void Add(std::string line) {
    MutexLock lock(mutex_);
    if (waiting_bytes_ + line.size() > kMaxWaitingBytes) {
      ++dropped_;
      ++unreported_;
      return;
    }
    waiting_bytes_ += line.size();
    ++added_;
    lines_.push_back(std::move(line));
    changed_.NotifyAll();
  }

  bool Flush(absl::Duration timeout, bool unless_stuck) {
    const absl::Time deadline = SteadyNow() + timeout;
    MutexLock lock(mutex_);
    const uint64_t until = added_;
    while (written_ < until) {
      if ((unless_stuck && stuck_) || !changed_.WaitUntil(mutex_, deadline)) return false;
    }
    return true;
  }

  uint64_t dropped() const {
    MutexLock lock(mutex_);
    return dropped_;
  }

 private:
  [[noreturn]] void Run() {
    for (;;) {
      std::string line;
      uint64_t lost = 0;
      {
        MutexLock lock(mutex_);
        while (lines_.empty()) changed_.Wait(mutex_);
        line = std::move(lines_.front());
        lines_.pop_front();
        // Reported after the lines that were already waiting, which is where the lines are missing.
        if (lines_.empty()) lost = std::exchange(unreported_, 0);
      }
      Write(line);
      if (lost > 0) Write(LostLine(lost));
      MutexLock lock(mutex_);
      waiting_bytes_ -= line.size();
      ++written_;
      stuck_ = false;
      changed_.NotifyAll();
    }
  }

  static std::string LostLine(uint64_t lost) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return FormatEvent(std::chrono::duration_cast<std::chrono::milliseconds>(now).count(), LogLevel::kWarning,
                       "log_lines_dropped", {{"count", lost}}) +
           "\n";
  }

  // Waits until the line is written. If the descriptor is closed, the line is dropped.
  void Write(std::string_view line) {
    while (!line.empty()) {
      pollfd out{STDERR_FILENO, POLLOUT, 0};
      if (poll(&out, 1, kStuckMilliseconds) == 0) {
        MutexLock lock(mutex_);
        stuck_ = true;
        changed_.NotifyAll();
        continue;
      }
      // A pipe that poll reports as writable takes PIPE_BUF bytes without blocking.
      const ssize_t wrote = write(STDERR_FILENO, line.data(), std::min<size_t>(line.size(), PIPE_BUF));
      if (wrote < 0 && errno != EINTR && errno != EAGAIN) return;
      if (wrote > 0) line.remove_prefix(static_cast<size_t>(wrote));
    }
  }

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::string> lines_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t added_ ABSL_GUARDED_BY(mutex_) = 0, written_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0, unreported_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stuck_ ABSL_GUARDED_BY(mutex_) = false;
};

std::atomic<LogWriter *> writer{nullptr};

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

void AppendEscaped(char c, std::string &out) {
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

void AppendJsonString(std::string_view text, std::string &out) {
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

void LogValue::AppendJson(std::string &out) const {
  if (const auto *text = std::get_if<std::string>(&value_)) {
    AppendJsonString(*text, out);
  } else if (const auto *truth = std::get_if<bool>(&value_)) {
    out += *truth ? "true" : "false";
  } else if (const auto *number = std::get_if<double>(&value_)) {
    // JSON has no infinities and no NaN.
    if (*number - *number != 0) {
      out += "null";
    } else {
      absl::StrAppendFormat(&out, "%.6g", *number);
    }
  } else if (const auto *whole = std::get_if<int64_t>(&value_)) {
    absl::StrAppendFormat(&out, "%d", *whole);
  } else if (const auto *count = std::get_if<uint64_t>(&value_)) {
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
  for (const auto &[name, value] : fields) {
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
  if (LogWriter *const started = writer.load(); started != nullptr) {
    started->Add(std::move(line));
    // The last line before a process ends often has the reason.
    if (level == LogLevel::kError) started->Flush(kErrorPatience, /*unless_stuck=*/true);
    return;
  }
  // One fwrite on a locked stream: lines of different threads never mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void StartLogWriter() {
  // Never destroyed, because threads may log until the process has ended.
  if (writer.load() == nullptr) writer = std::make_unique<LogWriter>().release();
}

bool FlushLog(absl::Duration timeout) {
  LogWriter *const started = writer.load();
  return started == nullptr || started->Flush(timeout, /*unless_stuck=*/false);
}

uint64_t LogLinesDropped() {
  LogWriter *const started = writer.load();
  return started == nullptr ? 0 : started->dropped();
}

void SetLogLevel(LogLevel level) { lowest_level.store(level, std::memory_order_relaxed); }

}  // namespace evenkeel::telemetry
