// Ctrl-C (SIGINT) and SIGTERM of a command that works for a while: the first asks it to end, the second ends
// it at once.
//
// Example:
//     Interrupt interrupt;  // before the first thread is made
//     while (!done && !Interrupt::Happened()) done = FetchOne();
//     return Interrupt::Status("fetching step 7");  // exit code 130 or 143: 128 and the signal's number
//
// Threads and processes made later inherit that the signals are blocked, so that they finish what they have
// begun. Thread safety: all members may be called from many threads. At most one Interrupt exists in a
// process.
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"

namespace evenkeel::cli {

class Interrupt {
 public:
  // `asked` is called once, on a thread of its own, when the first signal has come; it must not block. It
  // must stay callable until the process ends.
  explicit Interrupt(std::function<void()> asked = [] {});
  // The signals wait from here on, as in the constructor, which makes a thread. For processes that are forked
  // before there are threads: without it Ctrl-C on a terminal would end them, and their work would fail.
  static void Block();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  static bool Happened();
  // 128 and the signal's number; 0 before.
  static int ExitCode();
  // Cancelled: "interrupted: what".
  static absl::Status Status(std::string_view what);
};

}  // namespace evenkeel::cli
