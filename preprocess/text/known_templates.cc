// Lists the templates that styles stand for, and writes conversations of the plain shape in a style.
#include "preprocess/text/known_templates.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/digest.h"
#include "core/utf8.h"

namespace evenkeel::preprocess {
namespace {

constexpr std::string_view kChannel[] = {"<|channel>", "<channel|>"};

constexpr KnownTemplate kKnown[] = {
    // Qwen2.5 (Instruct, Coder)
    {"c63bde148c12b98b639547fe4d33fa67", &kChatMl,
     "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    // Qwen2.5-VL
    {"e83000dd638f8c39d63c0ab8ac046a45", &kChatMl, "You are a helpful assistant."},
    // Qwen3-Instruct-2507
    {"cc9ddd5a40bc1c0c8fb5d937b1e8f5d0", &kChatMl, ""},
    // Qwen3-VL-Instruct
    {"6e7769344aefb8d81c679e5ba3aa43b5", &kChatMl, ""},
    // Llama-3 (8B, 70B Instruct)
    {"09facc0e4aa943189799ad6e2dea0594", &kLlama3, ""},
    // Gemma and Gemma 2
    {"8b30bb763d138e692c2e86beabccd2a4", &kGemma, "", /*has_system=*/false},
    // Gemma 3
    {"24b726d4a5f4731b6d23022eb1773ed6", &kGemma, ""},
    // Gemma 4
    {"83df29fd8fbbc283357398fa3aa9e46e", &kGemma4, "", /*has_system=*/true, kChannel},
    // earlier and later releases of it
    {"d3d35d95e949ef659bd65744505d2db5", &kGemma4, "", /*has_system=*/true, kChannel},
    {"7e7900772b51ad3d55ccad5c870013a6", &kGemma4, "", /*has_system=*/true, kChannel},
    {"6081ccd879ad263bb67097de3f402358", &kGemma4, "", /*has_system=*/true, kChannel},
    {"5fb4c1925efcb48d89cb3e7e7a8b9603", &kGemma4, "", /*has_system=*/true, kChannel},
    // DiffusionGemma
    {"f7467a36bd17239d6ebfc3d340d692c5", &kGemma4, "", /*has_system=*/true, kChannel},
};

// Far below the limits of a template's work and strings, so that no conversation passes here and fails there.
constexpr size_t kMaxTurns = 1000;
constexpr uint64_t kShareOfLimit = 4;

bool SpellsOneOf(std::span<const std::string> special_tokens, std::string_view text) {
  // Most texts have no first character of any special token.
  std::array<bool, 256> searched{}, found{};
  for (const std::string& token : special_tokens) {
    if (token.empty()) continue;
    const auto first = static_cast<unsigned char>(token[0]);
    if (!searched[first]) {
      searched[first] = true;
      found[first] = text.find(token[0]) != std::string_view::npos;
    }
    if (found[first] && text.find(token) != std::string_view::npos) return true;
  }
  return false;
}

// Whether turn `i` is of the plain shape.
bool IsPlain(const KnownTemplate& known, const std::vector<Turn>& turns, size_t i) {
  const Turn& turn = turns[i];
  const bool is_system = turn.role == Role::kSystem;
  if (turn.role == Role::kTool || (is_system && (i != 0 || !known.has_system))) return false;
  if (turn.calls != 0 || !turn.members.empty() || turn.spans.size() > 1) return false;
  for (const Span& span : turn.spans) {
    if (span.medium != Medium::kText) return false;
    for (std::string_view text : known.removed) {
      if (span.text.find(text) != std::string_view::npos) return false;
    }
  }
  return known.style->refusal == nullptr || known.style->refusal(turns, i).empty();
}

}  // namespace

const KnownTemplate* KnownTemplateOf(std::string_view source) {
  const std::string digest = DigestOf(source).Hex();
  const auto found = std::find_if(std::begin(kKnown), std::end(kKnown),
                                  [&](const KnownTemplate& known) { return known.digest == digest; });
  return found == std::end(kKnown) ? nullptr : &*found;
}

bool FitsTokenizer(const KnownTemplate& known, const Tokenizer& tokenizer) {
  const std::vector<std::string> special = tokenizer.special_tokens();
  const auto is_special = [&](std::string_view mark) {
    return std::find(special.begin(), special.end(), mark) != special.end();
  };
  const ChatStyle& style = *known.style;
  return std::all_of(style.marks.begin(), style.marks.end(), is_special) &&
         (style.text_begin.empty() || tokenizer.bos_token() == style.text_begin);
}

bool WriteInStyle(const KnownTemplate& known, std::span<const std::string> special_tokens,
                  const Conversation& conversation, std::string_view system, uint64_t max_text_bytes,
                  StyledText& out) {
  const std::vector<Turn>& turns = conversation.turns;
  if (conversation.plain || turns.empty() || turns.size() > kMaxTurns || !conversation.tools.empty() ||
      !conversation.documents.empty()) {
    return false;
  }
  const bool own_system = turns[0].role == Role::kSystem;
  if (!own_system && !system.empty() && !known.has_system) return false;
  const size_t first = own_system ? 1 : 0;
  // A prompt for the first answer would stand in no conversation at all, or after a system's turn alone.
  if (first == turns.size() || turns[first].role != Role::kUser) return false;
  uint64_t num_bytes = own_system ? 0 : system.size();
  for (size_t i = 0; i < turns.size(); ++i) {
    if (!IsPlain(known, turns, i)) return false;
    for (const Span& span : turns[i].spans) {
      num_bytes += span.text.size();
      if (!IsUtf8(span.text) || SpellsOneOf(special_tokens, span.text)) return false;
    }
  }
  if (num_bytes + 100 * turns.size() > max_text_bytes / kShareOfLimit) return false;
  if (!own_system && (!IsUtf8(system) || SpellsOneOf(special_tokens, system))) return false;

  thread_local Rendering rendering;
  Render(conversation, *known.style, system.empty() ? known.default_system : system, rendering);
  out.text.assign(known.style->text_begin);
  out.text.reserve(num_bytes + 100 * turns.size());
  // A turn's trained segments are one after another, and turns of the assistant are apart from each other.
  out.answers.assign(turns.size(), {});
  size_t turn = 0;
  bool was_trained = false;
  for (const Stretch& stretch : rendering.stretches()) {
    if (stretch.trained && !was_trained) {
      while (turns[turn].role != Role::kAssistant) ++turn;
      out.answers[turn++].begin = out.text.size();
    }
    out.text += stretch.text;
    if (stretch.trained) out.answers[turn - 1].end = out.text.size();
    was_trained = stretch.trained;
  }
  return true;
}

}  // namespace evenkeel::preprocess
