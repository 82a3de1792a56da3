// What the worker makes of bad data, and where its metrics are read.
#include "server/part_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/bad_data.h"
#include "server/metrics_page.h"
#include "telemetry/metrics.h"
#include "tests/usual_phases.h"

namespace evenkeel::server {
namespace {

using testing::HasSubstr;

TEST(PartMetrics, CountTheLimitThatABadItemExceeded) {
  telemetry::Metrics metrics;
  BadData bad(&metrics);
  bad.Report("video", "a/b/c", absl::ResourceExhaustedError("17 streams; limits.max_streams is 16"));
  bad.Report("audio", "a/b/d", absl::ResourceExhaustedError("longer than limits.max_audio_seconds 3600"));
  bad.Report("image", "a/b/e", absl::ResourceExhaustedError("limits.max_nothing is no limit of ours"));
  bad.Report("image", "a/b/f", absl::DataLossError("not limits.max_streams"));
  std::string text = metrics.Text();
  for (const char* limit : {"max_audio_seconds", "max_streams"}) {
    const std::string counted = absl::StrCat("evenkeel_limits_exceeded_total{limit=\"", limit, "\"} 1\n");
    ASSERT_THAT(text, HasSubstr(counted));
    text.erase(text.find(counted), counted.size());
  }
  for (size_t at = text.find("_limits_exceeded_total{"); at != text.npos;
       at = text.find("_limits_exceeded_total{", at + 1)) {
    EXPECT_EQ(text[text.find('\n', at) - 1], '0') << text.substr(at, 60);
  }
}

TEST(PartMetrics, CountWhatHappensToParts) {
  telemetry::Metrics metrics;
  PartMetrics events(&metrics);
  events.OnBad("image", "a/b/c", absl::DataLossError("no picture"));
  events.OnItem(kVisionPhase, false, 8);
  events.OnSequence(true, 5, absl::ZeroDuration());
  events.OnProduced(absl::ZeroDuration(), absl::ZeroDuration(), {.frames_repeated = 2});
  const std::string text = metrics.Text();
  for (const char* counted :
       {"evenkeel_errors_total{reason=\"DATA_LOSS\"} 1\n",
        "evenkeel_items_total{phase=\"vision\",valid=\"false\"} 1\n",
        "evenkeel_samples_total{valid=\"true\"} 1\n", "evenkeel_tokens_total{phase=\"vision\"} 8\n",
        "evenkeel_tokens_total{phase=\"llm\"} 5\n",
        "evenkeel_adjusted_total{kind=\"frames_repeated\"} 2\n"}) {
    EXPECT_THAT(text, HasSubstr(counted));
  }
}

TEST(DecoderMetrics, CountReplacementsByReason) {
  telemetry::Metrics metrics;
  DecoderMetrics(&metrics).OnDecoderReplaced("cpu", "signal 9");
  EXPECT_THAT(metrics.Text(), HasSubstr("evenkeel_decoder_restarts_total{reason=\"cpu\"} 1"));
}

TEST(PartMetrics, RefuseAnAddressTheyCannotListenAt) {
  telemetry::Metrics metrics;
  EXPECT_EQ(ExposeMetrics(metrics, "nowhere").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace evenkeel::server
