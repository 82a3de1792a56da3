// ChatML as the Qwen2 templates write it: <|im_start|>role\ncontent<|im_end|>\n for every turn. Tools follow
// the system prompt, and calls follow the assistant's text, as in Qwen2.5 and Qwen3.
//
// Trained: the content of assistant turns, their calls, and the <|im_end|> that closes them.
#include <algorithm>
#include <array>

#include "preprocess/text/rendering.h"

namespace evenkeel::preprocess {
namespace {

constexpr std::string_view kBegin = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";
constexpr std::array kMarks = {kBegin, kEnd};

constexpr std::string_view kBeforeTools =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr std::string_view kBehindTools =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
    "<args-json-object>}\n</tool_call>";

// How a variant writes a medium. `clip`: the number of audio clips so far, this one included.
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

  void Render(const Conversation& chat, std::string_view system) {
    const std::vector<Turn>& turns = chat.turns;
    const bool own_system = !turns.empty() && turns[0].role == Role::kSystem;
    if (own_system || !system.empty() || !chat.tools.empty()) {
      Header("system");
      if (own_system) Content(turns[0], false);
      out_.Text(system);
      if (!chat.tools.empty()) Tools(chat.tools, own_system || !system.empty());
      Footer(false);
    }
    std::span<const ToolCall> calls = chat.calls;
    for (size_t i = own_system ? 1 : 0; i < turns.size(); ++i) {
      if (turns[i].role == Role::kTool) {
        Tool(turns, i);
        continue;
      }
      const bool trained = turns[i].role == Role::kAssistant;
      Header(RoleName(turns[i].role));
      Content(turns[i], trained);
      Calls(calls.first(turns[i].calls), SaysSomething(turns[i]));
      calls = calls.subspan(turns[i].calls);
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
  // The model must learn to produce the end token; the line break after it is the template's.
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
  void Tools(std::span<const std::string_view> tools, bool behind_a_prompt) {
    if (behind_a_prompt) out_.Text("\n\n");
    out_.Text(kBeforeTools);
    for (std::string_view tool : tools) {
      out_.Text("\n");
      out_.Text(tool);
    }
    out_.Text(kBehindTools);
  }
  static bool SaysSomething(const Turn& turn) {
    return std::any_of(turn.spans.begin(), turn.spans.end(),
                       [](const Span& span) { return span.medium != Medium::kText || !span.text.empty(); });
  }
  void Calls(std::span<const ToolCall> calls, bool behind_something) {
    for (const ToolCall& call : calls) {
      out_.Text(behind_something ? "\n<tool_call>\n{\"name\": \"" : "<tool_call>\n{\"name\": \"", true);
      behind_something = true;
      out_.Text(call.name, true);
      out_.Text("\", \"arguments\": ", true);
      out_.Text(call.arguments, true);
      out_.Text("}\n</tool_call>", true);
    }
  }
  // Consecutive results of tools share one user turn, as in the Qwen2.5 template.
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
  uint32_t clips_ = 0;  // audio clips so far in the whole chat
  Rendering& out_;
};

template <WriteMedium kWrite>
constexpr ChatStyle Variant(std::string_view name, bool has_tools = false) {
  return {.name = name,
          .text_begin = "",
          .marks = kMarks,
          .has_system = true,
          .has_tools = has_tools,
          .render = [](const Conversation& chat, std::string_view system, Rendering& out) {
            ChatMl(kWrite, out).Render(chat, system);
          }};
}

}  // namespace

const ChatStyle kChatMl = Variant<Bare>("chatml", /*has_tools=*/true);
const ChatStyle kInternVl = Variant<FollowedByLineBreak>("internvl");
const ChatStyle kQwen2Audio = Variant<NumberedClip>("qwen2_audio");

}  // namespace evenkeel::preprocess
