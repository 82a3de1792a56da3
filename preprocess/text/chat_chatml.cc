// ChatML as the Qwen2 templates write it: <|im_start|>role\ncontent<|im_end|>\n for every turn.
//
// Trained: the content of assistant turns and the <|im_end|> that closes them.
#include <array>

#include "preprocess/text/rendering.h"

namespace evenkeel {
namespace {

constexpr std::string_view kBegin = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";
constexpr std::array kMarks = {kBegin, kEnd};

// What the variants write around the media of a turn.
using WriteMedium = void (*)(const Span& span, uint32_t clip, Rendering& out);

void Bare(const Span& span, uint32_t, Rendering& out) { out.Item(span); }

void FollowedByLineBreak(const Span& span, uint32_t, Rendering& out) {
  out.Item(span);
  out.Text("\n");
}

void NumberedClip(const Span& span, uint32_t clip, Rendering& out) {
  if (span.medium != Medium::kAudio) return Bare(span, clip, out);
  out.Text("Audio ");
  out.Number(clip);
  out.Text(": ");
  FollowedByLineBreak(span, clip, out);
}

class ChatMl {
 public:
  ChatMl(WriteMedium write_medium, Rendering& out) : write_medium_(write_medium), out_(out) {}

  void Render(const std::vector<Turn>& turns, std::string_view system) {
    if (!system.empty()) {
      Header("system");
      out_.Text(system);
      Footer(false);
    }
    for (size_t i = 0; i < turns.size(); ++i) {
      if (turns[i].role == Role::kTool) {
        Tool(turns, i);
        continue;
      }
      const bool trained = turns[i].role == Role::kAssistant;
      Header(RoleName(turns[i].role));
      Content(turns[i], trained);
      Footer(trained);
    }
  }

 private:
  static std::string_view RoleName(Role role) {
    return role == Role::kSystem ? "system" : role == Role::kAssistant ? "assistant" : "user";
  }
  void Header(std::string_view role) {
    out_.Mark(kBegin);
    out_.Text(role);
    out_.Text("\n");
  }
  // The mark is how the model says that it has finished, the line break is never its own.
  void Footer(bool trained) {
    out_.Mark(kEnd, trained);
    out_.Text("\n");
  }
  void Content(const Turn& turn, bool trained) {
    for (const Span& span : turn.spans) {
      if (span.medium == Medium::kText) {
        out_.Text(span.text, trained);
      } else {
        clips_ += span.medium == Medium::kAudio;
        write_medium_(span, clips_, out_);
      }
    }
  }
  // Results of tools that follow each other share one turn of the user, as in the Qwen2.5 template.
  void Tool(const std::vector<Turn>& turns, size_t i) {
    if (i == 0 || turns[i - 1].role != Role::kTool) {
      out_.Mark(kBegin);
      out_.Text("user");
    }
    out_.Text("\n<tool_response>\n");
    Content(turns[i], false);
    out_.Text("\n</tool_response>");
    if (i + 1 == turns.size() || turns[i + 1].role != Role::kTool) Footer(false);
  }

  const WriteMedium write_medium_;
  uint32_t clips_ = 0;  // so far, of the whole chat
  Rendering& out_;
};

template <WriteMedium kWrite>
constexpr ChatStyle Variant(std::string_view name) {
  return {.name = name,
          .text_begin = "",
          .marks = kMarks,
          .has_system = true,
          .render = [](const std::vector<Turn>& turns, std::string_view system, Rendering& out) {
            ChatMl(kWrite, out).Render(turns, system);
          }};
}

}  // namespace

const ChatStyle kChatMl = Variant<Bare>("chatml");
const ChatStyle kInternVl = Variant<FollowedByLineBreak>("internvl");
const ChatStyle kQwen2Audio = Variant<NumberedClip>("qwen2_audio");

}  // namespace evenkeel
