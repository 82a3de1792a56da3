// One round of the loop: tasks, deadlines, poll, tasks again, then the sockets that poll named.
#include "transport/socket_loop.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>

#include "transport/latch.h"

namespace evenkeel::transport {
namespace {

// A bound on the delay if a deadline was computed wrongly.
constexpr Clock::duration kLongestSleep = std::chrono::seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<SocketLoop>> SocketLoop::Start(const char* name, Tick tick) {
  Handle wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (wake.get() < 0) return absl::ResourceExhaustedError("no file handle left for eventfd");
  std::unique_ptr<SocketLoop> loop(new SocketLoop(std::move(wake), std::move(tick)));
  loop->thread_ = std::thread([self = loop.get()] { self->Loop(); });
  pthread_setname_np(loop->thread_.native_handle(), name);
  return loop;
}

void SocketLoop::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  Post([] {});
  thread_.join();
}

void SocketLoop::Post(Task task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
}

void SocketLoop::Run(Task task) {
  Latch latch;
  Post([&] {
    task();
    latch.CountDown();
  });
  latch.Wait();
}

void SocketLoop::Watch(int socket, Ready ready) { watched_[socket] = {next_number_++, std::move(ready)}; }

void SocketLoop::Unwatch(int socket) { watched_.erase(socket); }

bool SocketLoop::RunTasks() {
  std::vector<Task> tasks;
  {
    MutexLock lock(mutex_);
    tasks.swap(tasks_);
    if (tasks.empty() && stopping_) return false;
  }
  for (Task& task : tasks) {
    task();
    task = nullptr;  // destroys what it owns before the next task, which may report that it ran
  }
  return true;
}

void SocketLoop::Loop() {
  while (RunTasks()) Serve(tick_(Clock::now()));
}

void SocketLoop::Serve(Clock::time_point deadline) {
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
  std::vector<uint64_t> numbers = {0};
  for (const auto& [socket, watched] : watched_) {
    polled.push_back({socket, POLLIN, 0});
    numbers.push_back(watched.number);
  }
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::clamp(deadline - Clock::now(), Clock::duration::zero(), kLongestSleep))
                        .count();
  const timespec sleep{left / 1'000'000'000, left % 1'000'000'000};
  if (ppoll(polled.data(), polled.size(), &sleep, nullptr) <= 0) return;
  uint64_t count;
  (void)!read(wake_.get(), &count, sizeof(count));
  if (!RunTasks()) return;
  for (size_t i = 1; i < polled.size(); ++i) {
    if (polled[i].revents == 0) continue;
    // A task or another socket's event may have closed this one.
    const auto found = watched_.find(polled[i].fd);
    if (found == watched_.end() || found->second.number != numbers[i]) continue;
    const Ready ready = found->second.ready;  // a copy, since it may unwatch itself
    ready();
  }
}

}  // namespace evenkeel::transport
