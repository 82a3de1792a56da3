#include "telemetry/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "telemetry/event_log.h"
#include "tests/source_dir.h"
#include "tests/usual_phases.h"

namespace evenkeel::telemetry {
namespace {

std::set<std::string> NamesIn(const std::string& text, const std::string& pattern) {
  std::set<std::string> names;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) names.insert((*it)[1]);
  return names;
}

std::string Document(const std::string& name) {
  std::ifstream file(SourceDir() + "/docs/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Metrics, CountEachLimitOfTheJobAndBothDocumentsNameIt) {
  const std::set<std::string> counted =
      NamesIn(Metrics().Text(), "evenkeel_limits_exceeded_total\\{limit=\"([a-z_]+)\"\\} 0\n");
  EXPECT_EQ(counted.size(), 17u);
  const std::string job = Document("job.md");
  EXPECT_EQ(NamesIn(job.substr(job.find("\n## `limits`")), "\n\\| `(max_[a-z_]+)` \\|"), counted);
  EXPECT_EQ(NamesIn(Document("safety.md"), "`(max_[a-z_]+)`"), counted);
}

TEST(Metrics, AreAllInTheDocument) {
  Metrics metrics;
  metrics.BeginPhases(kUsualPhases);
  metrics.CountSample(true);
  metrics.CountItem(kVisionPhase, false);
  metrics.CountError("DATA_LOSS");
  metrics.CountAdjusted("frames_repeated", 3);
  metrics.CountSent("ucx", 5);
  metrics.SetImbalance(Phase::kLlm, 1.5, 1.01);
  metrics.SetTransport("ucx", "tcp/lo", false);
  metrics.SetStream("job", "a", "b");
  metrics.SetBytes({});
  metrics.SetQueue(1, 2, 3);
  metrics.SetSessions(4);
  metrics.SetConnections(5);
  metrics.SetRanks(6);
  metrics.SetCertificate(absl::Hours(1), false);
  metrics.SetDraining(false);
  metrics.CountLimit("max_streams");
  metrics.CountDecoderRestart("cpu");
  EXPECT_EQ(NamesIn(metrics.Text(), "# TYPE (evenkeel_[a-z_]+)"),
            NamesIn(Document("metrics.md"), "\n\\| `(evenkeel_[a-z_]+)`"));
}

TEST(Metrics, HaveEveryReasonAtZeroFromTheStart) {
  Metrics metrics;
  metrics.BeginPhases(kUsualPhases);
  metrics.SetTransport("ucx", "tcp/lo", false);
  const std::string text = metrics.Text();
  for (const char* series :
       {"evenkeel_errors_total{reason=\"DATA_LOSS\"} 0\n",
        "evenkeel_errors_total{reason=\"INVALID_ARGUMENT\"} 0\n",
        "evenkeel_errors_total{reason=\"RESOURCE_EXHAUSTED\"} 0\n",
        "evenkeel_errors_total{reason=\"UNIMPLEMENTED\"} 0\n",
        "evenkeel_errors_total{reason=\"attempt_INTERNAL\"} 0\n",
        "evenkeel_errors_total{reason=\"attempt_FAILED_PRECONDITION\"} 0\n",
        "evenkeel_adjusted_total{kind=\"samples_trimmed\"} 0\n",
        "evenkeel_limits_exceeded_total{limit=\"max_image_pixels\"} 0\n",
        "evenkeel_decoder_restarts_total{reason=\"crash\"} 0\n",
        "evenkeel_connections_refused_total{reason=\"handles\"} 0\n", "evenkeel_self_test_failures_total 0\n",
        "evenkeel_samples_total{valid=\"false\"} 0\n", "evenkeel_sent_bytes_total{transport=\"ucx\"} 0\n",
        "evenkeel_duplicate_requests_total 0\n"}) {
    EXPECT_THAT(text, ::testing::HasSubstr(series));
  }
  // What is counted later is one of them, not one beside them.
  metrics.CountError("DATA_LOSS");
  metrics.CountItem(kAudioPhase, false);
  metrics.CountLimit("max_streams");
  metrics.CountAdjusted("frames_repeated", 2);
  metrics.CountDecoderRestart("cpu");
  metrics.CountSent("ucx", 5);
  const std::string counted = metrics.Text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), std::count(counted.begin(), counted.end(), '\n'));
}

TEST(EventLog, WritesOneValidLineOfJsonWhateverTheTextIs) {
  const std::string line = FormatEvent(1769860800123, LogLevel::kWarning, "invalid",
                                       {{"sample", std::string("a\"\n\\\x01\xFF\xC3\xA9")},
                                        {"count", 3},
                                        {"ratio", 0.5},
                                        {"nothing", 0.0 / 0.0},
                                        {"ok", true}});
  EXPECT_EQ(line,
            "{\"time\":\"2026-01-31T12:00:00.123Z\",\"level\":\"warning\",\"event\":\"invalid\","
            "\"sample\":\"a\\\"\\n\\\\\\u0001\xEF\xBF\xBD\xC3\xA9\",\"count\":3,\"ratio\":0.5,\"nothing\":"
            "null,\"ok\":true}");
}

}  // namespace
}  // namespace evenkeel::telemetry
