// bench_chats TOKENIZER_FOLDER SECONDS: chats of about 1 KB written by the folder's chat template, against the time that
// its tokenizer takes for what is written. Prints microseconds a chat of processor time, and their ratio; "prefixes" are
// labels by the rendering of first turns, for which a template without generation blocks is rendered several times.
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "core/conversation.h"
#include "core/job.h"
#include "preprocess/text/templated_chat.h"

namespace evenkeel {
namespace {

constexpr std::string_view kSentence =
    "The boat lies on the water, and the people on the shore wait for the wind to turn before the evening. ";

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Microseconds of one call.
double Time(double seconds, const std::function<void()>& call) {
  const double begin = ThreadSeconds();
  uint64_t calls = 0;
  while (ThreadSeconds() - begin < seconds) {
    call();
    ++calls;
  }
  return 1e6 * (ThreadSeconds() - begin) / static_cast<double>(calls);
}

int Main(char** arguments) {
  ProcessorSpec spec;
  spec.tokenizer = arguments[1];
  const double seconds = std::atof(arguments[2]);
  auto tokenizer = preprocess::Tokenizer::Load(spec.tokenizer, {});
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().ToString().c_str());
    return 1;
  }
  std::string text;
  for (int i = 0; i < 3; ++i) text += kSentence;
  Conversation chat;
  for (int i = 0; i < 4; ++i) {
    Turn turn{.role = i % 2 == 0 ? Role::kUser : Role::kAssistant};
    turn.spans.push_back({Medium::kText, std::string_view(text).substr(0, 250), 0});
    chat.turns.push_back(std::move(turn));
  }
  spec.chat = "template";
  spec.date = "2026-11-24";
  for (const auto& [name, labels] : {std::pair("once", "all"), {"prefixes", ""}}) {
    spec.labels = labels;
    auto chats = preprocess::TemplatedChat::Load(spec, **tokenizer, {}, Limits());
    preprocess::TemplatedText out;
    const absl::Status status = chats.ok() ? (*chats)->Write(chat, out) : chats.status();
    if (!status.ok()) {
      std::fprintf(stderr, "%s: %s\n", name, status.ToString().c_str());
      continue;
    }
    const double written = Time(seconds, [&] { (*chats)->Write(chat, out).IgnoreError(); });
    const double tokenised = Time(seconds, [&] {
      (*tokenizer)->EncodeWritten(out.text, {}, preprocess::TextPlace::kFirst).IgnoreError();
    });
    std::printf("%s: %zu bytes, written in %.1f us, tokenised in %.1f us, ratio %.2f\n", name,
                out.text.size(), written, tokenised, written / tokenised);
  }
  return 0;
}

}  // namespace
}  // namespace evenkeel

int main(int count, char** arguments) {
  if (count == 3) return evenkeel::Main(arguments);
  std::fprintf(stderr, "bench_chats TOKENIZER_FOLDER SECONDS\n");
  return 2;
}
