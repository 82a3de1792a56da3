// Renders a conversation as segments of text, special tokens and items, and lists the chat styles.
#include "preprocess/text/rendering.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/scratch.h"
#include "preprocess/text/trim.h"
#include "preprocess/unknown_word.h"

namespace evenkeel::preprocess {
namespace {

using Kind = Stretch::Kind;

// The turns' contents one after another, then the end-of-text token.
void RenderPlain(const std::vector<Turn>& turns, bool all_trained, Rendering& out) {
  bool trained = all_trained;
  for (const Turn& turn : turns) {
    trained = all_trained || turn.role == Role::kAssistant;
    out.Content(turn.spans, trained);
  }
  out.TextEnd(trained);
}

const ChatStyle* const kStyles[] = {&kChatMl,  &kGemma,   &kInternVl, &kLlama3,     &kLlava,
                                    &kMistral, &kPixtral, &kPlain,    &kQwen2Audio, &kVicuna};

}  // namespace

const ChatStyle kPlain = {.name = "plain",
                          .text_begin = "",
                          .marks = {},
                          .has_system = false,
                          .render = [](const Conversation& chat, std::string_view, Rendering& out) {
                            RenderPlain(chat.turns, /*all_trained=*/false, out);
                          }};

void Rendering::Clear() { Emptied(stretches_); }

void Rendering::Mark(std::string_view token, bool trained) {
  stretches_.push_back({.kind = Kind::kMark, .trained = trained, .text = token});
}

void Rendering::TextEnd(bool trained) { stretches_.push_back({.kind = Kind::kTextEnd, .trained = trained}); }

void Rendering::Text(std::string_view text, bool trained) {
  if (text.empty()) return;
  stretches_.push_back({.kind = Kind::kText, .trained = trained, .text = text});
}

void Rendering::Number(uint32_t number) {
  static constexpr std::string_view kDigits = "0123456789";
  if (number >= 10) Number(number / 10);
  Text(kDigits.substr(number % 10, 1));
}

void Rendering::Item(const Span& span) {
  stretches_.push_back({.kind = Kind::kItem, .item = span.item, .medium = span.medium});
}

void Rendering::Content(std::span<const Span> spans, bool trained) {
  for (const Span& span : spans) {
    if (span.medium == Medium::kText) {
      Text(span.text, trained);
    } else {
      Item(span);
    }
  }
}

// Skips spans of white space at both ends, then strips the first and the last text that is left.
void Rendering::TrimmedContent(std::span<const Span> spans, bool trained) {
  const auto shows = [](const Span& span) {
    return span.medium != Medium::kText || !WithoutLeading(span.text).empty();
  };
  while (!spans.empty() && !shows(spans.front())) spans = spans.subspan(1);
  while (!spans.empty() && !shows(spans.back())) spans = spans.first(spans.size() - 1);
  for (size_t i = 0; i < spans.size(); ++i) {
    Span span = spans[i];
    if (i == 0) span.text = WithoutLeading(span.text);
    if (i + 1 == spans.size()) span.text = WithoutTrailing(span.text);
    Content({&span, 1}, trained);
  }
}

void EachTurn(const Conversation& chat, std::string_view system,
              void (*turn)(Role role, std::span<const Span> spans, Rendering& out), Rendering& out) {
  const Span of_job{.text = system};
  if (!system.empty()) turn(Role::kSystem, {&of_job, 1}, out);
  for (const Turn& one : chat.turns) turn(one.role, one.spans, out);
}

std::string_view MustAlternate(std::span<const Turn> turns, size_t turn) {
  const size_t first = turns[0].role == Role::kSystem ? 1 : 0;
  if (turn < first) return "";
  const Role expected = (turn - first) % 2 == 0 ? Role::kUser : Role::kAssistant;
  if (turns[turn].role == expected) return "";
  return expected == Role::kUser ? "is not a user's" : "is not an assistant's";
}

absl::StatusOr<const ChatStyle*> ChatStyleFromName(std::string_view name) {
  std::vector<std::string> known = {std::string(kTemplateChat)};
  for (const ChatStyle* style : kStyles) {
    if (style->name == name) return style;
    known.emplace_back(style->name);
  }
  return UnknownWord("chat", name, known);
}

void Render(const Conversation& conversation, const ChatStyle& style, std::string_view system,
            Rendering& out) {
  out.Clear();
  if (conversation.plain) {
    RenderPlain(conversation.turns, /*all_trained=*/true, out);
  } else {
    const bool own_system = !conversation.turns.empty() && conversation.turns[0].role == Role::kSystem;
    style.render(conversation, own_system ? std::string_view() : system, out);
  }
}

}  // namespace evenkeel::preprocess
