// Parses endpoints, resolves a name with getaddrinfo on a thread of its own, and publishes the sorted list.
#include "client/endpoints.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/annotated_mutex.h"
#include "core/status.h"
#include "core/steady_time.h"

namespace evenkeel::client {
namespace {

constexpr absl::Duration kMinPause = absl::Seconds(1);  // between two lookups

absl::Status CheckHostPort(absl::string_view text) {
  size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || colon == 0 || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port == 0 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("endpoints: '", text,
                                                   "' is not host:port; give \"host:port,host:port\" or "
                                                   "\"dns:///name:port\""));
  }
  return absl::OkStatus();
}

// Multiplies by 0.75 to 1.25.
absl::Duration Jittered(absl::Duration duration) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return duration * std::uniform_real_distribution<double>(0.75, 1.25)(random);
}

struct AddressInfoDeleter {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};

}  // namespace

absl::StatusOr<EndpointSpec> ParseEndpoints(const std::string& text) {
  EndpointSpec spec;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "dns:///")) {
    EVENKEEL_RETURN_IF_ERROR(CheckHostPort(rest));
    size_t colon = rest.rfind(':');
    spec.name = std::string(rest.substr(0, colon));
    spec.port = std::string(rest.substr(colon + 1));
    return spec;
  }
  std::set<std::string> distinct;
  for (absl::string_view one : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    one = absl::StripAsciiWhitespace(one);
    EVENKEEL_RETURN_IF_ERROR(CheckHostPort(one));
    distinct.insert(std::string(one));
  }
  if (distinct.empty()) {
    return absl::InvalidArgumentError(
        "endpoints: none given; give \"host:port,host:port\" or \"dns:///name:port\"");
  }
  spec.list.assign(distinct.begin(), distinct.end());
  return spec;
}

// A std::set sorts and deduplicates: getaddrinfo returns an address once per socket type and in any order.
absl::StatusOr<std::vector<std::string>> LookUp(const std::string& name, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = AF_UNSPEC;
  addrinfo* found = nullptr;
  int error = getaddrinfo(name.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot look up ", name, ":", port, ": ", gai_strerror(error)));
  }
  std::unique_ptr<addrinfo, AddressInfoDeleter> owner(found);
  std::set<std::string> distinct;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    char host[NI_MAXHOST];
    if (getnameinfo(info->ai_addr, info->ai_addrlen, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    distinct.insert(info->ai_family == AF_INET6 ? absl::StrCat("[", host, "]:", port)
                                                : absl::StrCat(host, ":", port));
  }
  if (distinct.empty()) return absl::UnavailableError(absl::StrCat(name, ":", port, " has no address"));
  return std::vector<std::string>(distinct.begin(), distinct.end());
}

struct EndpointWatch::State {
  State(EndpointSpec spec, Listener listener, absl::Duration interval, Lookup lookup)
      : spec(std::move(spec)), listener(std::move(listener)), interval(interval), lookup(std::move(lookup)) {}

  void Watch();
  bool Look();
  bool WaitUntilDue();
  void LookAgain();

  const EndpointSpec spec;
  const Listener listener;
  const absl::Duration interval;
  const Lookup lookup;

  Mutex mutex;
  CondVar changed;
  bool stop ABSL_GUARDED_BY(mutex) = false;
  bool again ABSL_GUARDED_BY(mutex) = false;
  bool looking ABSL_GUARDED_BY(mutex) = false;  // a lookup is in progress, or has not seen `stop` yet
};

EndpointWatch::EndpointWatch(EndpointSpec spec, Listener listener, absl::Duration interval, Lookup lookup)
    : state_(std::make_shared<State>(std::move(spec), std::move(listener), interval, std::move(lookup))) {
  if (state_->spec.is_dns()) {
    thread_ = std::thread([state = state_] { state->Watch(); });
  } else {
    state_->listener(state_->spec.list);
  }
}

EndpointWatch::~EndpointWatch() {
  if (!thread_.joinable()) return;
  bool looking = false;
  {
    MutexLock lock(state_->mutex);
    state_->stop = true;
    state_->changed.NotifyAll();
    looking = state_->looking;
  }
  // getaddrinfo cannot be interrupted. The thread owns its State and ends by itself when the lookup returns.
  if (looking) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void EndpointWatch::LookAgain() { state_->LookAgain(); }

void EndpointWatch::State::LookAgain() {
  MutexLock lock(mutex);
  again = true;
  changed.NotifyAll();
}

void EndpointWatch::State::Watch() {
  while (Look() && WaitUntilDue()) continue;
}

// One lookup. Returns false if the watch ended meanwhile.
bool EndpointWatch::State::Look() {
  {
    MutexLock lock(mutex);
    if (stop) return false;
    // Cleared before the lookup, not after it: a request that arrives during the lookup asks for the next
    // one.
    again = false;
    looking = true;
  }
  absl::StatusOr<std::vector<std::string>> found = lookup(spec.name, spec.port);
  {
    MutexLock lock(mutex);
    looking = false;
    if (stop) return false;
  }
  // Not stopped: the destructor joins this thread from here on, so the listener runs before it returns.
  bool failed = !found.ok();
  listener(std::move(found));
  if (failed) LookAgain();  // retries a failed name soon
  return true;
}

// Waits for the next lookup: a full interval, or kMinPause after LookAgain. Returns false if the watch ends.
bool EndpointWatch::State::WaitUntilDue() {
  absl::Time begin = SteadyNow();
  absl::Time due = begin + Jittered(interval);
  absl::Time soonest = begin + std::min(Jittered(kMinPause), interval);
  MutexLock lock(mutex);
  while (!stop && changed.WaitUntil(mutex, again ? soonest : due)) continue;
  return !stop;
}

}  // namespace evenkeel::client
