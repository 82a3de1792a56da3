// A thread that serves sockets: it waits for them, runs posted tasks in order, and checks deadlines.
//
// Whatever was posted before a message was sent runs before the message is received.
//
// Thread safety: Post and Run may be called from many threads; Watch and Unwatch from the loop's own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "core/annotated_mutex.h"
#include "core/handle.h"
#include "transport/deadline.h"

namespace evenkeel::transport {

class SocketLoop {
 public:
  using Task = std::function<void()>;
  // Checks deadlines; returns the next one.
  using Tick = std::function<Clock::time_point(Clock::time_point now)>;
  // The socket can be read, or its peer is gone.
  using Ready = std::function<void()>;

  // ResourceExhausted: no file handle left.
  static absl::StatusOr<std::unique_ptr<SocketLoop>> Start(const char* name, Tick tick);
  ~SocketLoop() { Stop(); }
  SocketLoop(const SocketLoop&) = delete;
  SocketLoop& operator=(const SocketLoop&) = delete;

  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  // As Post, and waits until the task has run. Must not be called from the loop's thread.
  void Run(Task task);

  // Runs all posted tasks, then ends the thread. An owner whose tasks use its pointer to the loop calls this
  // before it gives the pointer up.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  void Watch(int socket, Ready ready);
  void Unwatch(int socket);

 private:
  struct Watched {
    uint64_t number;  // the kernel reuses the number of a handle, not this one
    Ready ready;
  };

  SocketLoop(Handle wake, Tick tick) : wake_(std::move(wake)), tick_(std::move(tick)) {}
  void Loop();
  bool RunTasks();
  void Serve(Clock::time_point deadline);

  const Handle wake_;  // an eventfd
  const Tick tick_;
  std::map<int, Watched> watched_;  // used by the loop's thread alone
  uint64_t next_number_ = 0;

  Mutex mutex_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace evenkeel::transport
