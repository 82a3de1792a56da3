#include "server/bad_data.h"

#include "server/event_log.h"

namespace evenkeel {

void BadData::Report(std::string_view what, const std::string& sample, const absl::Status& why) {
  const std::string reason = absl::StatusCodeToString(why.code());
  if (metrics_ != nullptr) metrics_->CountError(reason);
  {
    MutexLock lock(mutex_);
    if (logged_.size() >= kMaxNames || !logged_.insert(sample).second) return;
  }
  LogEvent(LogLevel::kWarning, "invalid",
           {{"what", what}, {"sample", sample}, {"reason", reason}, {"message", std::string(why.message())}});
}

bool BadData::IsVerdict(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

}  // namespace evenkeel
