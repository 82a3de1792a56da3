// Any text as a chat template, before a zero byte; any JSON as its conversation, behind it: an error, or a
// text within the limits whose positions lie in it.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "preprocess/text/chat_template.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint64_t kMaxOutputBytes = 1 << 16;
constexpr std::string_view kChat =
    R"({"messages": [{"role": "user", "content": "a <end> b"}, {"role": "assistant", "content": [{"type": "text", "text": "c"}],
        "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]}], "tools": [{"name": "f"}]})";

[[noreturn]] void Fail(std::string_view what) {
  std::cerr << what << "\n";
  std::abort();
}

void Check(const RenderedChat& out) {
  if (out.text.size() > kMaxOutputBytes) Fail("longer than the limit");
  for (const uint64_t at : out.spelled) {
    if (at >= out.text.size()) Fail("a spelt token beyond the text");
  }
  for (const TextRange& range : out.generated) {
    if (range.begin > range.end || range.end > out.text.size()) Fail("a generation block beyond the text");
  }
}

void Render(std::string_view source, std::string_view json) {
  const ChatTemplateSettings settings{.variables = R"({"eos_token": "<end>"})",
                                      .date = "2026-11-24",
                                      .special_tokens = {"<end>", "[X]"},
                                      .max_work = 20'000,
                                      .max_string_bytes = 1 << 20,
                                      .max_output_bytes = kMaxOutputBytes};
  const auto loaded = ChatTemplate::Load(source, settings);
  if (!loaded.ok()) {
    if (!absl::IsInvalidArgument(loaded.status()) && !absl::IsResourceExhausted(loaded.status()))
      Fail(loaded.status().ToString());
    return;
  }
  for (const std::string_view chat_text : {kChat, json}) {
    const auto chat = (*loaded)->Parse(chat_text);
    if (!chat.ok()) continue;
    RenderedChat out;
    for (const size_t messages : {size_t{1}, SIZE_MAX}) {
      if ((*loaded)->Render(**chat, messages, messages == 1, out).ok()) Check(out);
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  evenkeel::preprocess::Render(input.substr(0, end),
                               end == std::string_view::npos ? "" : input.substr(end + 1));
  return 0;
}
