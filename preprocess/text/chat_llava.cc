// LLaVA-1.5, whose language model is Vicuna: "USER: <image>\nquestion ASSISTANT: answer".
//
// llava    The template of the model's own processor: every turn's media first, each followed by a line
//          break, then its texts, each followed by a space. The system's turn has no name. Trained: texts of
//          assistant turns with their space. It writes no </s>, so a model trained on it does not learn to
//          stop.
// vicuna   As the model was trained: one space after the system prompt and questions, </s> after answers.
//          Trained: answers and their </s>.
#include <array>

#include "preprocess/text/rendering.h"

namespace evenkeel::preprocess {
namespace {

constexpr std::string_view kTextBegin = "<s>";
constexpr std::string_view kTextEnd = "</s>";
constexpr std::array kVicunaMarks = {kTextEnd};

std::string_view Name(Role role) {
  constexpr std::string_view kNames[] = {"", "USER: ", "ASSISTANT: ", "TOOL: "};
  return kNames[static_cast<size_t>(role)];
}

void RenderLlava(const Conversation& chat, std::string_view system, Rendering& out) {
  if (!system.empty()) {
    out.Text(system);
    out.Text(" ");
  }
  for (const Turn& turn : chat.turns) {
    const bool trained = turn.role == Role::kAssistant;
    out.Text(Name(turn.role));
    for (const Span& span : turn.spans) {
      if (span.medium == Medium::kText) continue;
      out.Item(span);
      out.Text("\n");
    }
    for (const Span& span : turn.spans) {
      if (span.medium != Medium::kText) continue;
      out.Text(span.text, trained);
      out.Text(" ", trained);
    }
  }
}

void RenderVicuna(const Conversation& chat, std::string_view system, Rendering& out) {
  if (!system.empty()) {
    out.Text(system);
    out.Text(" ");
  }
  for (const Turn& turn : chat.turns) {
    const bool trained = turn.role == Role::kAssistant;
    out.Text(Name(turn.role));
    out.Content(turn.spans, trained);
    if (trained) {
      out.Mark(kTextEnd, /*trained=*/true);
    } else {
      out.Text(" ");
    }
  }
}

}  // namespace

const ChatStyle kLlava = {
    .name = "llava", .text_begin = kTextBegin, .marks = {}, .has_system = true, .render = RenderLlava};
const ChatStyle kVicuna = {.name = "vicuna",
                           .text_begin = kTextBegin,
                           .marks = kVicunaMarks,
                           .has_system = true,
                           .render = RenderVicuna};

}  // namespace evenkeel::preprocess
