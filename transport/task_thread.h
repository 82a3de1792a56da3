// A thread that runs posted tasks in order and checks deadlines: the gRPC transports run their callbacks on
// it. Thread safety: all members may be called from many threads.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/annotated_mutex.h"
#include "transport/deadline.h"

namespace evenkeel::transport {

class TaskThread {
 public:
  using Task = std::function<void()>;
  // Called after every round of tasks, and at the deadline that its last call returned.
  using Tick = std::function<Clock::time_point(Clock::time_point now)>;

  TaskThread(const char* name, Tick tick);
  // Runs all posted tasks, then ends the thread.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns when every task posted before has run. Must not be called from a task.
  void Flush();

 private:
  void Loop();

  const Tick tick_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace evenkeel::transport
