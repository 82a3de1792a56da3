// Starts and stops the thread: Stop sets the flag, then wakes the poll through an eventfd.
#include "server/poll_thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace evenkeel::server {

PollThread::PollThread() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void PollThread::Stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  const uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof(one));
  thread_.join();
}

}  // namespace evenkeel::server
