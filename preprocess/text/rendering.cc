#include "preprocess/text/rendering.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace evenkeel {
namespace {

using Kind = Stretch::Kind;

// The turns' contents one after another, then the end of the text.
void RenderPlain(const std::vector<Turn>& turns, bool all_trained, Rendering& out) {
  bool trained = all_trained;
  for (const Turn& turn : turns) {
    trained = all_trained || turn.role == Role::kAssistant;
    out.Content(turn, trained);
  }
  out.TextEnd(trained);
}

const ChatStyle* const kStyles[] = {&kChatMl, &kInternVl, &kLlama3, &kLlava, &kPlain, &kQwen2Audio, &kVicuna};

}  // namespace

const ChatStyle kPlain = {.name = "plain",
                          .text_begin = "",
                          .marks = {},
                          .has_system = false,
                          .render = [](const std::vector<Turn>& turns, std::string_view, Rendering& out) {
                            RenderPlain(turns, /*all_trained=*/false, out);
                          }};

void Rendering::Mark(std::string_view token, bool trained) {
  stretches_.push_back({.kind = Kind::kMark, .trained = trained, .text = std::string(token)});
}

void Rendering::TextEnd(bool trained) { stretches_.push_back({.kind = Kind::kTextEnd, .trained = trained}); }

void Rendering::Text(std::string_view text, bool trained) {
  if (text.empty()) return;
  stretches_.push_back({.kind = Kind::kText, .trained = trained, .text = std::string(text)});
}

void Rendering::Item(const Span& span) {
  stretches_.push_back({.kind = Kind::kItem, .item = span.item, .medium = span.medium});
}

void Rendering::Content(const Turn& turn, bool trained) {
  for (const Span& span : turn.spans) {
    if (span.medium == Medium::kText) {
      Text(span.text, trained);
    } else {
      Item(span);
    }
  }
}

absl::StatusOr<const ChatStyle*> ChatStyleFromName(std::string_view name) {
  std::string known;
  for (const ChatStyle* style : kStyles) {
    if (style->name == name) return style;
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(style->name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("processor.chat: '", std::string(name), "'; there are ", known));
}

std::vector<Stretch> Render(const Conversation& conversation, const ChatStyle& style,
                            std::string_view system) {
  Rendering out;
  if (!style.text_begin.empty()) out.Mark(style.text_begin);
  if (conversation.plain) {
    RenderPlain(conversation.turns, /*all_trained=*/true, out);
  } else {
    const bool own_system = !conversation.turns.empty() && conversation.turns[0].role == Role::kSystem;
    style.render(conversation.turns, own_system ? std::string_view() : system, out);
  }
  return out.Take();
}

}  // namespace evenkeel
