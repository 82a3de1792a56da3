// Whether the pool of parts stays as fast as at its start: a million small parts pass through it one after
// another.
//
//   bench_part_pool [parts] [bytes of a part]      1,000,000 parts of 9,300 bytes; 512 MB are kept
//
// Prints nanoseconds of CPU time a part, of all threads and of the thread that asks, and the resident memory,
// for every tenth of the parts: the last line must be as the second, and the resident memory little more than
// what is counted. Every part is new, which is the longest way through the pool.
#include "server/part_pool.h"

#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "core/annotated_mutex.h"

namespace evenkeel {
namespace {

class SmallTask : public stream::PartTask {
 public:
  SmallTask(uint64_t step, uint64_t num_bytes) : name_{.step = step}, num_bytes_(num_bytes) {}
  const PartName& name() const override { return name_; }
  uint64_t num_bytes() const override { return num_bytes_; }
  size_t num_units() const override { return 1; }
  uint64_t scratch_bytes() const override { return 1000; }
  void Begin(std::span<std::byte>) override {}
  absl::Status RunUnit(size_t, std::span<std::byte> part) override {
    std::memset(part.data(), 1, part.size());
    return absl::OkStatus();
  }

 private:
  const PartName name_;
  const uint64_t num_bytes_;
};

class Waiter : public server::PartListener {
 public:
  void OnProgress(std::string_view, uint64_t, uint64_t) override {}
  void OnReady(std::shared_ptr<const server::ReadyPart>) override { End(); }
  void OnDropped(absl::Duration, const std::string&) override { End(); }
  void OnFailed(const absl::Status&) override { End(); }
  void Wait() {
    MutexLock lock(mutex_);
    while (!ended_) changed_.Wait(mutex_);
  }

 private:
  void End() {
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

double Seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double ResidentMib() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  file >> pages >> pages;
  return static_cast<double>(pages) * 4096 / (1 << 20);
}

void Run(uint64_t num_parts, uint64_t num_bytes) {
  server::PartPool pool({.num_threads = 1, .budget_bytes = 4ull << 30, .kept_bytes = 512ull << 20}, nullptr);
  std::printf("%12s %14s %14s %10s %14s %12s\n", "parts", "ns, all", "ns, asking", "kept", "counted MiB",
              "resident MiB");
  for (uint64_t tenth = 0; tenth < 10; ++tenth) {
    const double all = Seconds(CLOCK_PROCESS_CPUTIME_ID), asking = Seconds(CLOCK_THREAD_CPUTIME_ID);
    const uint64_t first = num_parts * tenth / 10, end = num_parts * (tenth + 1) / 10;
    for (uint64_t step = first; step < end; ++step) {
      auto waiter = std::make_shared<Waiter>();
      pool.Request(std::make_unique<SmallTask>(step, num_bytes), waiter);
      waiter->Wait();
    }
    const double scale = 1e9 / static_cast<double>(end - first);
    const server::PartPool::Stats stats = pool.stats();
    std::printf("%12lu %14.0f %14.0f %10lu %14.1f %12.1f\n", static_cast<unsigned long>(end),
                scale * (Seconds(CLOCK_PROCESS_CPUTIME_ID) - all),
                scale * (Seconds(CLOCK_THREAD_CPUTIME_ID) - asking), static_cast<unsigned long>(stats.ready),
                static_cast<double>(stats.bytes.ready) / (1 << 20), ResidentMib());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) {
  evenkeel::Run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000000,
                argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 9300);
}
