// Runs numbered pieces of work in threads, with a progress bar on a terminal and otherwise a line every few
// seconds.
#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace evenkeel::cli {

// Shows how many of `total` pieces are done. On a terminal: a bar, redrawn at most ten times a second.
// Otherwise: a line every five seconds, so that logs stay short; work that ends earlier prints
// nothing.
//
// Thread safety: for one thread.
class Progress {
 public:
  using Clock = std::function<absl::Time()>;

  // `noun`: the pieces, such as "shards". `out` must outlive it.
  Progress(size_t total, std::string noun, std::ostream& out, bool is_terminal, Clock clock = absl::Now);

  // May be called at any rate.
  void Show(size_t done);
  // Prints the final state and leaves the bar as it is.
  void Finish(size_t done);

 private:
  std::string Text(size_t done) const;
  void DrawBar(size_t done);

  const size_t total_;
  const std::string noun_;
  std::ostream& out_;
  const bool is_terminal_;
  const Clock clock_;
  const absl::Time started_;
  absl::Time shown_;
};

// Calls work(0) .. work(count - 1), each once, from `threads` threads, in about that order. After the first
// error no new piece is begun, and the error of the lowest piece is returned. An interrupt (cli/interrupt.h)
// is such an error: Cancelled. `noun`: "shards", for the progress on stderr.
absl::Status RunInParallel(size_t count, size_t threads, const std::string& noun,
                           const std::function<absl::Status(size_t)>& work);

// A function that prints the status to stderr, first after five seconds and then every five.
std::function<void(const absl::Status&)> PrintEveryFewSeconds();

}  // namespace evenkeel::cli
