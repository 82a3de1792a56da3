// Counts bad samples and items by reason, and logs each one once by name.
//
// Thread safety: may be used from many threads.
#pragma once

#include <set>
#include <string>

#include "absl/status/status.h"
#include "core/annotated_mutex.h"
#include "telemetry/metrics.h"

namespace evenkeel::server {

class BadData {
 public:
  explicit BadData(telemetry::Metrics* metrics) : metrics_(metrics) {}

  // `sample`: its line in the job's exclude list.
  void Report(std::string_view what, const std::string& sample, const absl::Status& why);

 private:
  static constexpr size_t kMaxNames = 10000;  // after that, bad samples are counted only

  telemetry::Metrics* const metrics_;
  Mutex mutex_;
  std::set<std::string> logged_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel::server
