// The log goes on when nobody reads it, and says what it lost.
#include "telemetry/event_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "core/handle.h"
#include "core/steady_time.h"

namespace evenkeel::telemetry {
namespace {

std::string ReadSome(const Handle& pipe) {
  std::string text(1 << 16, '\0');
  const ssize_t got = read(pipe.get(), text.data(), text.size());
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return text;
}

TEST(EventLog, NeverWaitsForItsReaderAndSaysHowManyLinesWereDropped) {
  int ends[2] = {};
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Handle reading(ends[0]);
  Handle writing(ends[1]);
  const Handle before(dup(STDERR_FILENO));
  ASSERT_EQ(dup2(writing.get(), STDERR_FILENO), STDERR_FILENO);
  StartLogWriter();
  LogEvent(LogLevel::kWarning, "first", {});
  EXPECT_TRUE(FlushLog(absl::Seconds(60)));
  EXPECT_THAT(ReadSome(reading), testing::HasSubstr("\"event\":\"first\""));

  const std::string large(1000, 'x');
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) LogEvent(LogLevel::kWarning, "line", {{"number", i}, {"text", large}});
  const uint64_t dropped = LogLinesDropped();
  EXPECT_GT(dropped, kLines / 2);
  EXPECT_LT(dropped, kLines - 900) << "the pipe and a megabyte are there";
  EXPECT_FALSE(FlushLog(absl::Milliseconds(100)));
  LogEvent(LogLevel::kError, "end", {{"text", large}});  // does not fit, and does not wait either
  EXPECT_EQ(LogLinesDropped(), dropped + 1);

  std::string text;
  const absl::Time deadline = SteadyNow() + absl::Seconds(60);
  while (text.find("log_lines_dropped") == std::string::npos && SteadyNow() < deadline)
    text += ReadSome(reading);
  dup2(before.get(), STDERR_FILENO);
  EXPECT_THAT(text,
              testing::HasSubstr("\"event\":\"log_lines_dropped\",\"count\":" + std::to_string(dropped + 1)));
  EXPECT_THAT(text, testing::HasSubstr("\"number\":0,"));
  EXPECT_TRUE(FlushLog(absl::Seconds(60)));
}

}  // namespace
}  // namespace evenkeel::telemetry
