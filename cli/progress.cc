#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"

namespace evenkeel::cli {
namespace {

constexpr absl::Duration kBarEvery = absl::Milliseconds(100), kLineEvery = absl::Seconds(5);

class Progress {
 public:
  Progress(size_t total, std::string noun)
      : total_(total), noun_(std::move(noun)), bar_(::isatty(STDERR_FILENO) == 1) {}

  void Show(size_t done) {
    absl::Time now = absl::Now();
    if (now - shown_ < (bar_ ? kBarEvery : kLineEvery)) return;
    shown_ = now;
    if (bar_) {
      Bar(done);
    } else {
      std::cerr << Text(done) << "\n";
    }
  }
  void Finish(size_t done) {
    if (!bar_) return;
    Bar(done);
    std::cerr << "\n";
  }

 private:
  std::string Text(size_t done) const {
    double share = total_ == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total_);
    std::string text = absl::StrFormat("%d/%d %s (%.0f %%)", done, total_, noun_, 100 * share);
    absl::Duration passed = absl::Now() - started_;
    if (done > 0 && done < total_ && passed > absl::Seconds(2)) {
      absl::Duration left = passed * ((1 - share) / share);
      absl::StrAppend(&text, ", ", absl::FormatDuration(absl::Trunc(left, absl::Seconds(1))), " left");
    }
    return text;
  }
  void Bar(size_t done) const {
    constexpr size_t kWidth = 30;
    size_t full = total_ == 0 ? kWidth : kWidth * done / total_;
    std::cerr << "\r[" << std::string(full, '#') << std::string(kWidth - full, '.') << "] " << Text(done)
              << "\x1b[K" << std::flush;
  }

  const size_t total_;
  const std::string noun_;
  const bool bar_;
  const absl::Time started_ = absl::Now();
  absl::Time shown_ = started_;
};

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
    absl::Status status = work(piece);
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
  Progress progress(count, noun);
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

}  // namespace evenkeel::cli
