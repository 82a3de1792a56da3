// Two callbacks that translate a library's log line into an event.
#include "server/library_log.h"

#include <grpc/support/log.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "telemetry/event_log.h"
#include "transport/ucx_library.h"

namespace evenkeel::server {
namespace {

void LogGrpc(gpr_log_func_args* line) {
  const telemetry::LogLevel level = line->severity == GPR_LOG_SEVERITY_ERROR  ? telemetry::LogLevel::kError
                                    : line->severity == GPR_LOG_SEVERITY_INFO ? telemetry::LogLevel::kInfo
                                                                              : telemetry::LogLevel::kDebug;
  telemetry::LogEvent(level, "grpc",
                      {{"message", line->message}, {"where", absl::StrCat(line->file, ":", line->line)}});
}

void LogUcx(const transport::UcxLine& line) {
  const telemetry::LogLevel level = line.is_error     ? telemetry::LogLevel::kError
                                    : line.is_warning ? telemetry::LogLevel::kWarning
                                                      : telemetry::LogLevel::kInfo;
  telemetry::LogEvent(level, "ucx",
                      {{"message", line.message}, {"where", absl::StrCat(line.file, ":", line.line)}});
}

}  // namespace

void LogLibraries() {
  gpr_set_log_function(LogGrpc);
  transport::LogUcxTo(LogUcx);
}

}  // namespace evenkeel::server
