// Mistral's chats: <s>, then [INST]question[/INST]answer</s>, without separators.
//
// mistral   From Mistral Small 3 on: the system prompt is [SYSTEM_PROMPT]...[/SYSTEM_PROMPT].
// pixtral   Pixtral: the system prompt stands in the last turn, followed by an empty line, if that turn is a
//           user's; a chat that ends with an answer does not contain it.
//
// Trained: the content of assistant turns and the </s> that closes them.
#include <array>

#include "preprocess/text/rendering.h"

namespace evenkeel::preprocess {
namespace {

constexpr std::string_view kTextBegin = "<s>";
constexpr std::string_view kAsks = "[INST]", kAsked = "[/INST]", kAnswered = "</s>";
constexpr std::string_view kSystem = "[SYSTEM_PROMPT]", kSystemEnd = "[/SYSTEM_PROMPT]";
constexpr std::array kPixtralMarks = {kAsks, kAsked, kAnswered};
constexpr std::array kMistralMarks = {kAsks, kAsked, kAnswered, kSystem, kSystemEnd};

void RenderAnswer(const Turn& turn, Rendering& out) {
  out.Content(turn.spans, /*trained=*/true);
  out.Mark(kAnswered, /*trained=*/true);
}

void RenderBetween(std::string_view begin, std::span<const Span> spans, std::string_view end,
                   Rendering& out) {
  out.Mark(begin);
  out.Content(spans, /*trained=*/false);
  out.Mark(end);
}

void RenderMistral(const Conversation& chat, std::string_view system, Rendering& out) {
  const Span of_job{.text = system};
  if (!system.empty()) RenderBetween(kSystem, {&of_job, 1}, kSystemEnd, out);
  for (const Turn& turn : chat.turns) {
    if (turn.role == Role::kAssistant) {
      RenderAnswer(turn, out);
    } else if (turn.role == Role::kSystem) {
      RenderBetween(kSystem, turn.spans, kSystemEnd, out);
    } else {
      RenderBetween(kAsks, turn.spans, kAsked, out);
    }
  }
}

void RenderPixtral(const Conversation& chat, std::string_view, Rendering& out) {
  for (const Turn& turn : chat.turns) {
    if (turn.role == Role::kAssistant) RenderAnswer(turn, out);
    if (turn.role != Role::kUser) continue;
    out.Mark(kAsks);
    if (&turn == &chat.turns.back() && chat.turns[0].role == Role::kSystem) {
      out.Content(chat.turns[0].spans, /*trained=*/false);
      out.Text("\n\n");
    }
    out.Content(turn.spans, /*trained=*/false);
    out.Mark(kAsked);
  }
}

std::string_view NoTools(std::span<const Turn> turns, size_t turn) {
  return turns[turn].role == Role::kTool ? "is a tool's" : "";
}

}  // namespace

const ChatStyle kMistral = {.name = "mistral",
                            .text_begin = kTextBegin,
                            .marks = kMistralMarks,
                            .refusal = NoTools,
                            .render = RenderMistral};
const ChatStyle kPixtral = {.name = "pixtral",
                            .text_begin = kTextBegin,
                            .marks = kPixtralMarks,
                            .has_system = false,
                            .refusal = MustAlternate,
                            .render = RenderPixtral};

}  // namespace evenkeel::preprocess
