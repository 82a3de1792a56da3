#include "preprocess/text/rendering.h"

#include "absl/strings/str_cat.h"

namespace evenkeel {
namespace {

using Kind = Stretch::Kind;

class Renderer {
 public:
  void Mark(Kind kind, bool trained = false) { out_.push_back({.kind = kind, .trained = trained}); }
  void Text(std::string_view text, bool trained = false) {
    if (!text.empty()) out_.push_back({.kind = Kind::kText, .trained = trained, .text = text});
  }
  void Content(const Turn& turn, bool trained) {
    for (const Span& span : turn.spans) {
      if (span.medium == Medium::kText) {
        Text(span.text, trained);
      } else {
        out_.push_back({.kind = Kind::kItem, .item = span.item, .medium = span.medium});
      }
    }
  }
  // "<|im_start|>role\n"
  void Header(std::string_view role) {
    Mark(Kind::kTurnBegin);
    Text(role);
    Text("\n");
  }
  // "<|im_end|>\n": the mark is how the model says that it has finished, the line break is never its own.
  void Footer(bool trained) {
    Mark(Kind::kTurnEnd, trained);
    Text("\n");
  }
  std::vector<Stretch> Take() { return std::move(out_); }

 private:
  std::vector<Stretch> out_;
};

// Results of tools that follow each other share one turn of the user, as in the Qwen2.5 template.
void RenderTool(const std::vector<Turn>& turns, size_t i, Renderer& out) {
  if (i == 0 || turns[i - 1].role != Role::kTool) {
    out.Mark(Kind::kTurnBegin);
    out.Text("user");
  }
  out.Text("\n<tool_response>\n");
  out.Content(turns[i], false);
  out.Text("\n</tool_response>");
  if (i + 1 == turns.size() || turns[i + 1].role != Role::kTool) out.Footer(false);
}

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kAssistant:
      return "assistant";
    case Role::kUser:
    case Role::kTool:
      break;
  }
  return "user";
}

void RenderChatMl(const std::vector<Turn>& turns, std::string_view system, Renderer& out) {
  if (!system.empty() && (turns.empty() || turns[0].role != Role::kSystem)) {
    out.Header("system");
    out.Text(system);
    out.Footer(false);
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].role == Role::kTool) {
      RenderTool(turns, i, out);
      continue;
    }
    bool trained = turns[i].role == Role::kAssistant;
    out.Header(RoleName(turns[i].role));
    out.Content(turns[i], trained);
    out.Footer(trained);
  }
}

void RenderPlain(const std::vector<Turn>& turns, bool all_trained, Renderer& out) {
  bool trained = all_trained;
  for (const Turn& turn : turns) {
    trained = all_trained || turn.role == Role::kAssistant;
    out.Content(turn, trained);
  }
  out.Mark(Kind::kTextEnd, trained);
}

}  // namespace

absl::StatusOr<ChatStyle> ChatStyleFromName(std::string_view name) {
  if (name == "chatml") return ChatStyle::kChatMl;
  if (name == "plain") return ChatStyle::kPlain;
  return absl::InvalidArgumentError(absl::StrCat(
      "processor.chat: '", absl::string_view(name.data(), name.size()), "'; there are chatml and plain"));
}

std::vector<Stretch> Render(const Conversation& conversation, ChatStyle style, std::string_view system) {
  Renderer out;
  if (conversation.plain || style == ChatStyle::kPlain) {
    RenderPlain(conversation.turns, conversation.plain, out);
  } else {
    RenderChatMl(conversation.turns, system, out);
  }
  return out.Take();
}

}  // namespace evenkeel
