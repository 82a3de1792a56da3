// A thread that polls sockets until it is stopped.
//
// Example:
//     PollThread thread;
//     thread.Start(std::make_unique<Loop>(thread));  // calls Loop::Run
//     // Run polls its sockets and thread.wake(), which ends the poll on Stop,
//     // until thread.stopping().
//     thread.Stop();
//
// Thread safety: stopping and wake may be called from any thread; Start and Stop from one thread at a time.
#pragma once

#include <poll.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "core/handle.h"

namespace evenkeel::server {

class PollThread {
 public:
  PollThread();
  ~PollThread() { Stop(); }
  PollThread(const PollThread&) = delete;
  PollThread& operator=(const PollThread&) = delete;

  // Runs `loop` on a new thread, which destroys it at its end. Call it once.
  template <typename Loop>
  void Start(std::unique_ptr<Loop> loop) {
    thread_ = std::thread([loop = std::move(loop)] { loop->Run(); });
  }
  // Returns when the loop has ended and is destroyed. May be called before Start, and more than once.
  void Stop();

  bool stopping() const { return stopping_; }
  // An entry for poll, readable after Stop was called.
  pollfd wake() const { return {wake_.get(), POLLIN, 0}; }

 private:
  const Handle wake_;  // an eventfd
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace evenkeel::server
