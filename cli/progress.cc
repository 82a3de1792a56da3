// Runs numbered pieces of work in threads and prints the progress.
#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/interrupt.h"
#include "core/annotated_mutex.h"
#include "core/steady_time.h"

namespace evenkeel::cli {
namespace {

constexpr absl::Duration kBarEvery = absl::Milliseconds(100), kLineEvery = absl::Seconds(5);
constexpr absl::Duration kBeforeEstimate = absl::Seconds(2);  // the first pieces are a poor estimate

struct Shared {
  std::atomic<size_t> next{0};
  Mutex mutex;
  CondVar changed;
  size_t done ABSL_GUARDED_BY(mutex) = 0;
  size_t running ABSL_GUARDED_BY(mutex) = 0;
  size_t failed_piece ABSL_GUARDED_BY(mutex) = 0;
  absl::Status failure ABSL_GUARDED_BY(mutex);
};

void Work(size_t count, const std::function<absl::Status(size_t)>& work, Shared& shared) {
  for (;;) {
    size_t piece = shared.next.fetch_add(1);
    if (piece >= count) break;
    absl::Status status =
        Interrupt::Happened() ? Interrupt::Status("not all of the work was done") : work(piece);
    MutexLock lock(shared.mutex);
    ++shared.done;
    if (!status.ok() && (shared.failure.ok() || piece < shared.failed_piece)) {
      shared.failure = status;
      shared.failed_piece = piece;
      shared.next.store(count);
    }
    shared.changed.NotifyAll();
  }
  MutexLock lock(shared.mutex);
  --shared.running;
  shared.changed.NotifyAll();
}

}  // namespace

Progress::Progress(size_t total, std::string noun, std::ostream& out, bool is_terminal, Clock clock)
    : total_(total),
      noun_(std::move(noun)),
      out_(out),
      is_terminal_(is_terminal),
      clock_(std::move(clock)),
      started_(clock_()),
      shown_(started_) {}

void Progress::Show(size_t done) {
  const absl::Time now = clock_();
  if (now - shown_ < (is_terminal_ ? kBarEvery : kLineEvery)) return;
  shown_ = now;
  if (is_terminal_) {
    DrawBar(done);
  } else {
    out_ << Text(done) << std::endl;
  }
}

void Progress::Finish(size_t done) {
  if (!is_terminal_) return;
  DrawBar(done);
  out_ << std::endl;
}

std::string Progress::Text(size_t done) const {
  const double share = total_ == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total_);
  std::string text = absl::StrFormat("%d/%d %s (%.0f %%)", done, total_, noun_, 100 * share);
  const absl::Duration passed = clock_() - started_;
  if (done > 0 && done < total_ && passed > kBeforeEstimate) {
    const absl::Duration left = passed * ((1 - share) / share);
    absl::StrAppend(&text, ", ", absl::FormatDuration(absl::Trunc(left, absl::Seconds(1))), " left");
  }
  return text;
}

void Progress::DrawBar(size_t done) {
  constexpr size_t kWidth = 30;
  const size_t full = total_ == 0 ? kWidth : kWidth * done / total_;
  out_ << "\r[" << std::string(full, '#') << std::string(kWidth - full, '.') << "] " << Text(done) << "\x1b[K"
       << std::flush;
}

absl::Status RunInParallel(size_t count, size_t threads, const std::string& noun,
                           const std::function<absl::Status(size_t)>& work) {
  Shared shared;
  threads = std::clamp<size_t>(threads, 1, std::max<size_t>(count, 1));
  {
    MutexLock lock(shared.mutex);
    shared.running = threads;
  }
  std::vector<std::thread> pool;
  for (size_t i = 0; i < threads; ++i) pool.emplace_back([&] { Work(count, work, shared); });
  Progress progress(count, noun, std::cerr, ::isatty(STDERR_FILENO) == 1);
  for (bool running = true; running;) {
    size_t done;
    {
      MutexLock lock(shared.mutex);
      if (shared.running > 0) shared.changed.WaitFor(shared.mutex, kBarEvery);
      running = shared.running > 0;
      done = shared.done;
    }
    progress.Show(done);
  }
  for (std::thread& thread : pool) thread.join();
  MutexLock lock(shared.mutex);
  progress.Finish(shared.done);
  return shared.failure;
}

std::function<void(const absl::Status&)> PrintEveryFewSeconds() {
  return [printed = SteadyNow()](const absl::Status& status) mutable {
    if (SteadyNow() - printed < kLineEvery) return;
    printed = SteadyNow();
    std::cerr << "evenkeel: " << status.message() << std::endl;
  };
}

}  // namespace evenkeel::cli
