// Gemma 4's and DiffusionGemma's templates for chats of texts: <bos>, then <|turn>role\ncontent<turn|>\n for every turn, the
// content stripped of white space. The assistant's role is "model", and the system has a turn of its own. Two answers in a
// row, which later releases write as one turn, are refused. It has no name for processor.chat: known_templates.cc alone
// chooses it.
//
// Trained: the content of assistant turns and the <turn|> that closes them.
#include <array>

#include "preprocess/text/rendering.h"

namespace evenkeel::preprocess {
namespace {

constexpr std::array<std::string_view, 2> kMarks = {"<|turn>", "<turn|>"};

void RenderTurn(Role role, std::span<const Span> spans, Rendering& out) {
  const bool trained = role == Role::kAssistant;
  out.Mark(kMarks[0]);
  out.Text(trained ? "model\n" : role == Role::kSystem ? "system\n" : "user\n");
  out.TrimmedContent(spans, trained);
  out.Mark(kMarks[1], trained);
  out.Text("\n");
}

void RenderGemma4(const Conversation& chat, std::string_view system, Rendering& out) {
  EachTurn(chat, system, RenderTurn, out);
}

std::string_view NoAnswersInARow(std::span<const Turn> turns, size_t turn) {
  const bool follows = turn > 0 && turns[turn - 1].role == Role::kAssistant;
  return follows && turns[turn].role == Role::kAssistant ? "is an assistant's, as is the one before it" : "";
}

}  // namespace

const ChatStyle kGemma4 = {.name = "gemma4",
                           .text_begin = "<bos>",
                           .marks = kMarks,
                           .refusal = NoAnswersInARow,
                           .render = RenderGemma4};

}  // namespace evenkeel::preprocess
