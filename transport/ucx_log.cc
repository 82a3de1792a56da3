#include "transport/ucx_log.h"

#include <ucs/debug/log_def.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace evenkeel::transport {
namespace {

constexpr size_t kLongestMessage = 1024;

ucs_log_func_rc_t Print(const char* file, unsigned line, const char*, ucs_log_level_t level,
                        const ucs_log_component_config_t*, const char* message, va_list arguments) {
  char text[kLongestMessage];
  std::vsnprintf(text, sizeof(text), message, arguments);
  std::fprintf(stderr, "UCX %s: %s (%s:%u)\n", ucs_log_level_names[level], text, file, line);
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

void LogUcxToStandardError() {
  if (std::getenv("UCX_LOG_FILE") == nullptr) ucs_log_push_handler(Print);
}

}  // namespace evenkeel::transport
