// Counts, measures and logs what happens to parts and decoders.
//
// Thread safety: may be used from many threads.
#pragma once

#include "isolation/decoder_events.h"
#include "server/bad_data.h"
#include "stream/part_events.h"
#include "telemetry/metrics.h"

namespace evenkeel::server {

class PartMetrics final : public stream::PartEvents {
 public:
  // `metrics` must outlive it.
  explicit PartMetrics(telemetry::Metrics* metrics) : metrics_(metrics), bad_data_(metrics) {}

  void OnProduced(absl::Duration read, absl::Duration written, const preprocess::ItemNotes& notes) override;
  void OnItem(const Phase& phase, bool valid, uint64_t input_rows) override;
  void OnSequence(bool valid, uint64_t tokens, absl::Duration duration) override;
  void OnBad(std::string_view what, const std::string& sample, const absl::Status& why) override;

 private:
  telemetry::Metrics* const metrics_;
  BadData bad_data_;
};

class DecoderMetrics final : public isolation::DecoderEvents {
 public:
  // `metrics` must outlive it.
  explicit DecoderMetrics(telemetry::Metrics* metrics) : metrics_(metrics) {}

  void OnDecoderReplaced(std::string_view reason, std::string_view) override {
    metrics_->CountDecoderRestart(reason);
  }
  void OnSpawnerReplaced(const absl::Status&) override {}

 private:
  telemetry::Metrics* const metrics_;
};

}  // namespace evenkeel::server
