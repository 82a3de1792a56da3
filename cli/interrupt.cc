// Takes SIGINT and SIGTERM on a thread of its own with sigwait, so that no code runs in a signal handler.
#include "cli/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

namespace evenkeel::cli {
namespace {

std::atomic<int> first_signal{0};

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void Interrupt::Block() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

Interrupt::Interrupt(std::function<void()> asked) {
  Block();
  std::thread([signals = Signals(), asked = std::move(asked)] {
    int number = 0;
    sigwait(&signals, &number);
    first_signal = number;
    asked();
    sigwait(&signals, &number);
    _exit(128 + number);  // at once: without destructors
  }).detach();
}

bool Interrupt::Happened() { return first_signal != 0; }

int Interrupt::ExitCode() { return first_signal == 0 ? 0 : 128 + first_signal; }

absl::Status Interrupt::Status(std::string_view what) {
  return absl::CancelledError(absl::StrCat("interrupted: ", std::string(what)));
}

}  // namespace evenkeel::cli
