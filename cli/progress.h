// Work on numbered pieces in threads, with a progress bar on a terminal and a line every few seconds
// elsewhere.
#pragma once

#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace evenkeel::cli {

// Says how many of `total` pieces are done: on a terminal by a bar that is drawn again in its place, ten
// times a second at most; elsewhere by a line every five seconds, so that a log stays short. Work that ends
// before says nothing elsewhere.
//
// Thread safety: none.
class Progress {
 public:
  using Clock = std::function<absl::Time()>;

  // `noun`: of the pieces, as "shards". `out` must outlive it.
  Progress(size_t total, std::string noun, std::ostream& out, bool is_terminal, Clock clock = absl::Now);

  // Call it as often as you like.
  void Show(size_t done);
  // The end: leaves the bar as it is then.
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
// error no new piece is begun; that of the lowest piece is returned. An interrupt (cli/interrupt.h) is such
// an error: Cancelled. `noun`: "shards", for the progress on stderr.
absl::Status RunInParallel(size_t count, size_t threads, const std::string& noun,
                           const std::function<absl::Status(size_t)>& work);

// Prints what it is called with to stderr, the first time after five seconds and then every five.
std::function<void(const absl::Status&)> PrintEveryFewSeconds();

}  // namespace evenkeel::cli
