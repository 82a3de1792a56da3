// Counts bad items by reason and logs each name once, in bounded memory.
#include "server/bad_data.h"

#include <algorithm>
#include <vector>

#include "core/job.h"
#include "telemetry/event_log.h"

namespace evenkeel::server {
namespace {

// The limit that a status names; every message about a limit ends with one ("...; limits.max_streams is 16").
// Empty if it names none.
std::string_view LimitOf(const absl::Status& status) {
  constexpr std::string_view kPrefix = "limits.";
  if (!absl::IsResourceExhausted(status)) return "";
  std::string_view text(status.message().data(), status.message().size());
  const size_t begin = text.find(kPrefix);
  if (begin == text.npos) return "";
  text = text.substr(begin + kPrefix.size());
  text = text.substr(0, text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_"));
  // The number of metric labels is bounded: only names of the job's limits are accepted.
  const std::vector<std::string> limits = LimitNames();
  return std::find(limits.begin(), limits.end(), text) == limits.end() ? std::string_view() : text;
}

}  // namespace

void BadData::Report(std::string_view what, const std::string& sample, const absl::Status& why) {
  const std::string reason = absl::StatusCodeToString(why.code());
  if (metrics_ != nullptr) {
    metrics_->CountError(reason);
    if (const std::string_view limit = LimitOf(why); !limit.empty()) metrics_->CountLimit(limit);
  }
  {
    MutexLock lock(mutex_);
    if (logged_.size() >= kMaxNames || !logged_.insert(sample).second) return;
  }
  telemetry::LogEvent(
      telemetry::LogLevel::kWarning, "invalid",
      {{"what", what}, {"sample", sample}, {"reason", reason}, {"message", std::string(why.message())}});
}

}  // namespace evenkeel::server
