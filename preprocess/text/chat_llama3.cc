// Llama-3's template: <|begin_of_text|>, then <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>
// for every turn, the content stripped of white space. (Llama-3.1's own template also writes today's date. A
// stream that depends on the day cannot be repeated, so put that text into the system prompt.)
//
// Trained: the content of assistant turns and the <|eot_id|> that closes them.
#include <array>

#include "preprocess/text/rendering.h"

namespace evenkeel::preprocess {
namespace {

constexpr std::array<std::string_view, 3> kMarks = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};

std::string_view RoleName(Role role) {
  constexpr std::string_view kNames[] = {"system", "user", "assistant", "tool"};
  return kNames[static_cast<size_t>(role)];
}

void RenderTurn(Role role, std::span<const Span> spans, Rendering& out) {
  const bool trained = role == Role::kAssistant;
  out.Mark(kMarks[0]);
  out.Text(RoleName(role));
  out.Mark(kMarks[1]);
  out.Text("\n\n");
  out.TrimmedContent(spans, trained);
  out.Mark(kMarks[2], trained);
}

void RenderLlama3(const Conversation& chat, std::string_view system, Rendering& out) {
  EachTurn(chat, system, RenderTurn, out);
}

}  // namespace

const ChatStyle kLlama3 = {.name = "llama3",
                           .text_begin = "<|begin_of_text|>",
                           .marks = kMarks,
                           .has_system = true,
                           .render = RenderLlama3};

}  // namespace evenkeel::preprocess
