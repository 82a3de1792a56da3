// SIGINT (Ctrl-C) and SIGTERM for commands that take a while:
// the first asks the command to end, the second ends it at
// once.
//
// Example:
//     Interrupt interrupt;  // before the first thread is made
//     while (!done && !Interrupt::Happened()) done = FetchOne();
//     return Interrupt::Status("fetching step 7");  // exit code 130 or 143: 128 and the signal's number
//
// Threads and processes made later inherit the blocked signals, so they finish what they have begun. Thread
// safety: all members may be called from many threads. At most one Interrupt exists in a process.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"

namespace evenkeel::cli {

class Interrupt {
 public:
  // `asked` is called once, on a thread of its own, after the first signal. It must not block, and must stay
  // callable until the process ends.
  explicit Interrupt(std::function<void()> asked = [] {});
  // Blocks the signals without a thread to take them, for processes that are forked before there are threads:
  // otherwise Ctrl-C on a terminal would end these processes and fail their work.
  static void Block();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool Happened();
  // 128 + the signal's number; 0 before a signal.
  static int ExitCode();
  // Cancelled: "interrupted: what".
  static absl::Status Status(std::string_view what);
};

}  // namespace evenkeel::cli
