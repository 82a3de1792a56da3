// Translates events of parts into metrics.
#include "server/part_metrics.h"

namespace evenkeel::server {

void PartMetrics::OnProduced(absl::Duration read, absl::Duration written,
                             const preprocess::ItemNotes& notes) {
  metrics_->ObserveStage(telemetry::Stage::kRead, read);
  metrics_->ObserveStage(telemetry::Stage::kMedia, written);
  metrics_->CountAdjusted("samples_filled", notes.samples_filled);
  metrics_->CountAdjusted("samples_trimmed", notes.samples_trimmed);
  metrics_->CountAdjusted("frames_repeated", notes.frames_repeated);
}

void PartMetrics::OnItem(const Phase& phase, bool valid, uint64_t input_rows) {
  metrics_->CountItem(phase, valid);
  metrics_->CountTokens(phase, input_rows);
}

void PartMetrics::OnSequence(bool valid, uint64_t tokens, absl::Duration duration) {
  metrics_->ObserveStage(telemetry::Stage::kText, duration);
  metrics_->CountSample(valid);
  metrics_->CountTokens(Phase::kLlm, tokens);
}

void PartMetrics::OnBad(std::string_view what, const std::string& sample, const absl::Status& why) {
  bad_data_.Report(what, sample, why);
}

}  // namespace evenkeel::server
