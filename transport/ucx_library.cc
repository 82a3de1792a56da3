// Loads UCX with dlopen and undoes its constructor's changes to signal handlers.
#include "transport/ucx_library.h"

#include <dlfcn.h>
#include <signal.h>
#include <ucs/debug/log_def.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

namespace evenkeel::transport {
namespace {

constexpr char kLibrary[] = "libucp.so.0";
constexpr size_t kLongestMessage = 1024;

std::atomic<bool> log_to_standard_error = false;
const char* const* log_level_names = nullptr;
std::atomic<void (*)(const UcxLine&)> line_taker = nullptr;

// Saves the dispositions of all signals; the destructor restores those that changed.
class KeptSignals {
 public:
  KeptSignals() {
    for (int number = 1; number < NSIG; ++number)
      known_[number] = sigaction(number, nullptr, &before_[number]) == 0;
  }
  ~KeptSignals() {
    for (int number = 1; number < NSIG; ++number) {
      struct sigaction now {};
      if (!known_[number] || sigaction(number, nullptr, &now) != 0) continue;
      if (now.sa_sigaction == before_[number].sa_sigaction && now.sa_flags == before_[number].sa_flags)
        continue;
      sigaction(number, &before_[number], nullptr);
    }
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  std::array<struct sigaction, NSIG> before_{};
  std::array<bool, NSIG> known_{};
};

ucs_log_func_rc_t Print(const char* file, unsigned line, const char*, ucs_log_level_t level,
                        const ucs_log_component_config_t*, const char* message, va_list arguments) {
  char text[kLongestMessage];
  std::vsnprintf(text, sizeof(text), message, arguments);
  if (void (*const take)(const UcxLine&) = line_taker.load(); take != nullptr) {
    take({.is_error = level <= UCS_LOG_LEVEL_ERROR,
          .is_warning = level == UCS_LOG_LEVEL_WARN,
          .message = text,
          .file = file,
          .line = line});
    return UCS_LOG_FUNC_RC_STOP;
  }
  std::fprintf(stderr, "UCX %s: %s (%s:%u)\n", log_level_names[level], text, file, line);
  return UCS_LOG_FUNC_RC_STOP;
}

// Looks a function up; `missing` keeps the name of the first one that the library lacks.
template <typename Function>
void Find(void* library, const char* name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr && missing->empty()) *missing = name;
}

// Optional: without these two symbols UCX keeps logging in its own way.
void PrintTo(void* library) {
  auto push = reinterpret_cast<decltype(&::ucs_log_push_handler)>(dlsym(library, "ucs_log_push_handler"));
  log_level_names = static_cast<const char* const*>(dlsym(library, "ucs_log_level_names"));
  if (push != nullptr && log_level_names != nullptr) push(Print);
}

absl::Status Load() {
  void* library = nullptr;
  {
    const KeptSignals kept;
    library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    const char* why = dlerror();
    return absl::UnavailableError(absl::StrCat("UCX cannot be loaded (", why == nullptr ? "" : why,
                                               "); install it (libucx0), or use --transport grpc"));
  }
  std::string missing;
  UcxFunctions& ucx = Ucx();
#define EVENKEEL_FIND(name) Find(library, #name, &ucx.name, &missing)
  EVENKEEL_FIND(ucp_init_version);
  EVENKEEL_FIND(ucp_cleanup);
  EVENKEEL_FIND(ucp_config_read);
  EVENKEEL_FIND(ucp_config_modify);
  EVENKEEL_FIND(ucp_config_release);
  EVENKEEL_FIND(ucp_mem_map);
  EVENKEEL_FIND(ucp_mem_unmap);
  EVENKEEL_FIND(ucp_worker_create);
  EVENKEEL_FIND(ucp_worker_destroy);
  EVENKEEL_FIND(ucp_worker_get_address);
  EVENKEEL_FIND(ucp_worker_release_address);
  EVENKEEL_FIND(ucp_worker_get_efd);
  EVENKEEL_FIND(ucp_worker_arm);
  EVENKEEL_FIND(ucp_worker_progress);
  EVENKEEL_FIND(ucp_worker_set_am_recv_handler);
  EVENKEEL_FIND(ucp_ep_create);
  EVENKEEL_FIND(ucp_ep_close_nbx);
  EVENKEEL_FIND(ucp_ep_print_info);
  EVENKEEL_FIND(ucp_am_send_nbx);
  EVENKEEL_FIND(ucp_am_recv_data_nbx);
  EVENKEEL_FIND(ucp_request_free);
  EVENKEEL_FIND(ucs_status_string);
#undef EVENKEEL_FIND
  if (!missing.empty()) {
    return absl::UnavailableError(
        absl::StrCat(kLibrary, " has no ", missing, "; UCX 1.13 or later is needed, or --transport grpc"));
  }
  if (log_to_standard_error && std::getenv("UCX_LOG_FILE") == nullptr) PrintTo(library);
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadUcx() {
  static const absl::Status& loaded = *new absl::Status(Load());
  return loaded;
}

UcxFunctions& Ucx() {
  static UcxFunctions& functions = *new UcxFunctions;
  return functions;
}

void LogUcxTo(void (*take)(const UcxLine& line)) { line_taker = take; }

void LogUcxToStandardError() { log_to_standard_error = true; }

}  // namespace evenkeel::transport
