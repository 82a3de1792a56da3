// bench_text TOKENIZER_FOLDER TEXTS SECONDS THREADS: texts tokenised by preprocess/text/tokenizer.h, tokens,
// seconds of processor time of all threads, and seconds by the clock. The arguments and the output are those
// of text-native/, which bench/preprocess/text.py compares with.
#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "preprocess/text/tokenizer.h"

namespace evenkeel {
namespace {

using Clock = std::chrono::steady_clock;

struct Count {
  uint64_t texts = 0;
  uint64_t ids = 0;
  double processor_seconds = 0;
};

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<std::string> ReadTexts(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> texts;
  for (size_t at = 0; at + 4 <= bytes.size();) {
    uint32_t length = 0;
    std::memcpy(&length, &bytes[at], sizeof(length));
    texts.push_back(bytes.substr(at + 4, length));
    at += 4 + length;
  }
  return texts;
}

Count Run(const preprocess::Tokenizer& tokenizer, const std::vector<std::string>& texts, double seconds) {
  const Clock::time_point begin = Clock::now();
  const double processor_begin = ThreadSeconds();
  Count count;
  while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds) {
    for (const std::string& text : texts) count.ids += tokenizer.EncodeUntrusted(text)->ids.size();
    count.texts += texts.size();
  }
  count.processor_seconds = ThreadSeconds() - processor_begin;
  return count;
}

int Main(char** arguments) {
  absl::StatusOr<std::unique_ptr<preprocess::Tokenizer>> tokenizer =
      preprocess::Tokenizer::Load(arguments[1], {});
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  const std::vector<std::string> texts = ReadTexts(arguments[2]);
  const double seconds = std::atof(arguments[3]);
  std::vector<Count> counts(std::atoi(arguments[4]));
  Run(**tokenizer, texts, seconds / 10);
  const Clock::time_point begin = Clock::now();
  std::vector<std::thread> threads;
  for (Count& count : counts) threads.emplace_back([&] { count = Run(**tokenizer, texts, seconds); });
  for (std::thread& thread : threads) thread.join();
  Count sum;
  for (const Count& count : counts) {
    sum = {sum.texts + count.texts, sum.ids + count.ids, sum.processor_seconds + count.processor_seconds};
  }
  const double elapsed = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("%llu %llu %f %f\n", static_cast<unsigned long long>(sum.texts),
              static_cast<unsigned long long>(sum.ids), sum.processor_seconds, elapsed);
  return 0;
}

}  // namespace
}  // namespace evenkeel

int main(int count, char** arguments) {
  if (count == 5) return evenkeel::Main(arguments);
  std::fprintf(stderr, "usage: bench_text TOKENIZER_FOLDER TEXTS SECONDS THREADS\n");
  return 2;
}
