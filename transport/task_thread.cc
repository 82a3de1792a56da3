// Runs posted tasks and expired deadlines on one thread.
#include "transport/task_thread.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "transport/latch.h"

namespace evenkeel::transport {

TaskThread::TaskThread(const char* name, Tick tick) : tick_(std::move(tick)), thread_([this] { Loop(); }) {
  pthread_setname_np(thread_.native_handle(), name);
}

TaskThread::~TaskThread() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void TaskThread::Post(Task task) {
  MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.NotifyAll();
}

void TaskThread::Flush() {
  Latch latch;
  Post([&latch] { latch.CountDown(); });
  latch.Wait();
}

void TaskThread::Loop() {
  Clock::time_point deadline = Clock::time_point::max();
  for (;;) {
    std::vector<Task> tasks;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !stopping_) {
        // Sleeps are cut to one second: a bound on the delay if a deadline was computed wrongly.
        Clock::duration left = deadline - Clock::now();
        if (left <= Clock::duration::zero()) break;
        changed_.WaitFor(mutex_, absl::FromChrono(std::min<Clock::duration>(left, std::chrono::seconds(1))));
      }
      if (tasks_.empty() && stopping_) return;
      tasks.swap(tasks_);
    }
    for (Task& task : tasks) {
      task();
      task = nullptr;  // destroys what it owns before the next task, which may be Flush's
    }
    deadline = tick_(Clock::now());
  }
}

}  // namespace evenkeel::transport
