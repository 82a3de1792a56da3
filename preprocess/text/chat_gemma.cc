// Gemma's template: <bos>, then <start_of_turn>role\ncontent<end_of_turn>\n for every turn. The assistant's
// role is "model". The system prompt stands unchanged before the first user's content, followed by an empty
// line. Every text of users and assistants is stripped of white space at both ends, also texts between media.
//
// Trained: the content of assistant turns and the <end_of_turn> that closes them.
#include <array>

#include "preprocess/text/rendering.h"
#include "preprocess/text/trim.h"

namespace evenkeel::preprocess {
namespace {

constexpr std::array<std::string_view, 2> kMarks = {"<start_of_turn>", "<end_of_turn>"};

void RenderGemma(const Conversation& chat, std::string_view system, Rendering& out) {
  std::span<const Turn> turns = chat.turns;
  const Span of_job{.text = system};
  std::span<const Span> before(&of_job, 1);
  bool has_system = !system.empty();
  if (!turns.empty() && turns[0].role == Role::kSystem) {
    before = turns[0].spans;
    has_system = true;
    turns = turns.subspan(1);
  }
  for (const Turn& turn : turns) {
    const bool trained = turn.role == Role::kAssistant;
    out.Mark(kMarks[0]);
    out.Text(trained ? "model\n" : "user\n");
    if (has_system) {
      out.Content(before, /*trained=*/false);
      out.Text("\n\n");
      has_system = false;
    }
    for (Span span : turn.spans) {
      span.text = WithoutTrailing(WithoutLeading(span.text));
      out.Content({&span, 1}, trained);
    }
    out.Mark(kMarks[1], trained);
    out.Text("\n");
  }
}

}  // namespace

const ChatStyle kGemma = {
    .name = "gemma", .text_begin = "<bos>", .marks = kMarks, .refusal = MustAlternate, .render = RenderGemma};

}  // namespace evenkeel::preprocess
