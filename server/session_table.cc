// Opens, finds and ends the sessions of consumers.
#include "server/session_table.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "core/steady_time.h"

namespace evenkeel::server {
namespace {

constexpr double kLongestWaitSeconds = 1e9;

// From the system's random source, so that a restarted worker does not reuse its predecessor's ids.
uint64_t RandomId() {
  std::random_device random;
  const uint64_t id = uint64_t{random()} << 32 | random();
  return id == 0 ? 1 : id;
}

}  // namespace

double Session::TakeWait(double total_seconds) {
  if (!(total_seconds > 0)) return 0;
  const int64_t total = static_cast<int64_t>(std::min(total_seconds, kLongestWaitSeconds) * 1e6);
  // Raises the stored total to this one, unless a later report has raised it further already.
  int64_t before = wait_us_.load();
  while (before < total && !wait_us_.compare_exchange_weak(before, total)) {
  }
  return before < total ? static_cast<double>(total - before) * 1e-6 : 0;
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Open(uint32_t rank, transport::Source& source,
                                                            const std::string& address,
                                                            const transport::Secret& secret) {
  auto session = std::make_shared<Session>();
  session->rank = rank;
  session->source = &source;
  session->transport = source.info().name;
  session->heard_ns = absl::ToUnixNanos(SteadyNow());
  {
    MutexLock lock(mutex_);
    if (sessions_.size() >= options_.max_sessions) {
      return absl::ResourceExhaustedError(
          absl::StrCat("this worker has its maximum of ", sessions_.size(), " sessions; ask another"));
    }
    do {
      session->id = RandomId();
    } while (sessions_.count(session->id) != 0);
    sessions_.emplace(session->id, session);
  }
  if (absl::Status connected = source.Connect(session->id, address, secret); !connected.ok()) {
    MutexLock lock(mutex_);
    sessions_.erase(session->id);
    return AddContext(connected, absl::StrCat("data plane of rank ", rank));
  }
  return session;
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Find(uint64_t id) {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || found->second->dead) {
    return absl::NotFoundError(
        "unknown session: it was closed or idle, or the worker was restarted; open another");
  }
  found->second->heard_ns = absl::ToUnixNanos(SteadyNow());
  return found->second;
}

void SessionTable::Close(uint64_t id) {
  std::shared_ptr<Session> session;
  {
    MutexLock lock(mutex_);
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    session = found->second;
    sessions_.erase(found);
  }
  session->dead = true;
  session->source->Disconnect(session->id);
}

void SessionTable::CloseAll() {
  for (const std::shared_ptr<Session>& session : TakeEnded(/*all=*/true))
    session->source->Disconnect(session->id);
}

size_t SessionTable::Sweep() {
  const std::vector<std::shared_ptr<Session>> ended = TakeEnded(/*all=*/false);
  for (const std::shared_ptr<Session>& session : ended) session->source->Disconnect(session->id);
  return ended.size();
}

size_t SessionTable::size() const {
  MutexLock lock(mutex_);
  return sessions_.size();
}

std::vector<std::shared_ptr<Session>> SessionTable::TakeEnded(bool all) {
  const int64_t heard_before = absl::ToUnixNanos(SteadyNow()) - absl::ToInt64Nanoseconds(options_.idle);
  std::vector<std::shared_ptr<Session>> ended;
  MutexLock lock(mutex_);
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    Session& session = *it->second;
    const bool idle = session.open_requests == 0 && session.heard_ns < heard_before;
    if (!all && !idle && !session.dead) {
      ++it;
      continue;
    }
    session.dead = true;
    ended.push_back(it->second);
    it = sessions_.erase(it);
  }
  return ended;
}

}  // namespace evenkeel::server
