// The sessions of consumers, each with its data plane: bounded in number, ended when idle.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, table.Open(rank, source, address, secret));
//     EVENKEEL_ASSIGN_OR_RETURN(session, table.Find(id));  // also records the time of the call
//     table.Sweep();  // regularly: disconnects sessions that are idle or whose peer is gone
//
// Thread safety: all members may be called from many threads. The table's lock is taken before a transport's.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"
#include "transport/transport.h"

namespace evenkeel::server {

struct Session {
  uint64_t id = 0;                      // random
  uint32_t rank = 0;                    // global, for logs
  transport::Source* source = nullptr;  // outlives the session
  std::string transport;                // its name
  std::atomic<int64_t> heard_ns{0};     // time of the last call, by the steady clock
  std::atomic<uint32_t> open_requests{0};
  std::atomic<bool> dead{false};  // its peer is gone; the next Sweep removes it

  // The consumer reports its total wait so far. Returns the seconds that are new in this report. Reports may
  // overtake each other; invalid numbers count as 0.
  double TakeWait(double total_seconds);

 private:
  std::atomic<int64_t> wait_us_{0};
};

// Counts as an open request of its session during its lifetime.
class OpenRequest {
 public:
  explicit OpenRequest(std::shared_ptr<Session> session) : session_(std::move(session)) {
    ++session_->open_requests;
  }
  ~OpenRequest() { --session_->open_requests; }
  OpenRequest(const OpenRequest&) = delete;
  OpenRequest& operator=(const OpenRequest&) = delete;

  Session& session() const { return *session_; }

 private:
  const std::shared_ptr<Session> session_;
};

class SessionTable {
 public:
  struct Options {
    uint32_t max_sessions = 4096;
    absl::Duration idle = absl::Seconds(60);
  };

  explicit SessionTable(Options options) : options_(options) {}
  // As CloseAll.
  ~SessionTable() { CloseAll(); }

  // ResourceExhausted: too many sessions; otherwise errors of Source::Connect.
  absl::StatusOr<std::shared_ptr<Session>> Open(uint32_t rank, transport::Source& source,
                                                const std::string& address, const transport::Secret& secret);
  // NotFound: the session does not exist, or has ended.
  absl::StatusOr<std::shared_ptr<Session>> Find(uint64_t id);
  void Close(uint64_t id);
  void CloseAll();
  // Ends sessions that are dead, or idle without an open request. Returns their number.
  size_t Sweep();

  size_t size() const;
  absl::Duration idle() const { return options_.idle; }

 private:
  std::vector<std::shared_ptr<Session>> TakeEnded(bool all);

  const Options options_;
  mutable Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel::server
