// Writes conversations as JSON for the template, and finds the parts of the rendered text that are trained.
#include "preprocess/text/templated_chat.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/read_file.h"
#include "core/status.h"
#include "preprocess/families/config_file.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint64_t kMaxTemplateBytes = 4ull << 20;
constexpr std::string_view kProbe = "evenkeel";  // a content that a template must reproduce

absl::StatusOr<std::string> ReadIfThere(const std::string& path) {
  absl::StatusOr<std::string> text = ReadAtMost(path, kMaxTemplateBytes + 1);
  if (absl::IsNotFound(text.status())) return std::string();
  if (!text.ok()) return AddContext(text.status(), path);
  if (text->size() > kMaxTemplateBytes)
    return absl::InvalidArgumentError(absl::StrCat(path, ": larger than 4 MiB"));
  return text;
}

absl::StatusOr<std::string> TemplateIn(const std::string& folder, std::string_view file) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ConfigFile::ReadIfThere(CheckpointFolder(folder), file));
  return config.Text("chat_template", "");
}

// The default template, searched in the order of AutoProcessor if the model has media, else of AutoTokenizer.
absl::StatusOr<std::string> DefaultTemplate(const std::string& folder, const Tokenizer& tokenizer,
                                            bool has_media) {
  if (has_media) {
    for (const char* file : {"processor_config.json", "chat_template.json"}) {
      EVENKEEL_ASSIGN_OR_RETURN(std::string source, TemplateIn(folder, file));
      if (!source.empty()) return source;
    }
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::string source, ReadIfThere(folder + "/chat_template.jinja"));
  if (source.empty()) source = tokenizer.chat_template("default");
  if (!source.empty() || has_media) return source;
  for (const char* file : {"chat_template.json", "processor_config.json"}) {
    EVENKEEL_ASSIGN_OR_RETURN(source, TemplateIn(folder, file));
    if (!source.empty()) return source;
  }
  return source;
}

// Appends a JSON string. The text is valid UTF-8, so only quotes, backslashes and control characters are
// escaped.
void AppendString(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

std::string_view RoleName(Role role) {
  constexpr std::string_view kNames[] = {"system", "user", "assistant", "tool"};
  return kNames[static_cast<size_t>(role)];
}

bool HasMedia(const Turn& turn) {
  return std::any_of(turn.spans.begin(), turn.spans.end(),
                     [](const Span& span) { return span.medium != Medium::kText; });
}

void AppendCalls(std::span<const ToolCall> calls, std::string& out) {
  const char* separator = R"(, "tool_calls": [)";
  for (const ToolCall& call : calls) {
    out += separator;
    separator = ", ";
    out += call.element;
  }
  out += "]";
}

// The weight of a turn with `labels: data`; 0: it is not trained. The data decide with `weight` or `loss`; an
// assistant's turn without either is trained. Turns of other roles never are: a mark that asks for it is an
// error.
absl::StatusOr<float> WeightOf(const Turn& turn, bool takes_weights) {
  if (turn.trained == TrainedByData::kUnclear) {
    return absl::InvalidArgumentError(
        "'weight' is neither 0 nor a number from 1e-6 to 1e6, 'loss' neither true nor false, or they "
        "contradict "
        "each other");
  }
  if (turn.weight != 1 && !takes_weights) {
    return absl::InvalidArgumentError(
        absl::StrCat("'weight' is ", turn.weight,
                     ", neither 0 nor 1; processor.loss_weights: data delivers such weights to the trainer"));
  }
  if (turn.role == Role::kAssistant) return turn.trained == TrainedByData::kNo ? 0 : turn.weight;
  if (turn.trained == TrainedByData::kYes) {
    return absl::InvalidArgumentError(
        "the data ask to train on it ('weight' or 'loss'), and only turns of the assistant can be trained");
  }
  return 0;
}

// The assistant's turn that follows turn `i`; the number of turns if there is none.
size_t NextAssistant(std::span<const Turn> turns, size_t i) {
  for (++i; i < turns.size(); ++i) {
    if (turns[i].role == Role::kAssistant) break;
  }
  return i;
}

// Assigns the generation blocks of a rendered conversation to its turns. A turn has the blocks by which the rendering of the
// first turns grows once it includes the turn. Blocks are counted and not searched in the text, so neither a generation prompt
// inside a block nor what the template writes at the end of a shorter conversation matters.
class BlocksOfTurns {
 public:
  // `text` and `blocks`: of all `num_messages`. All must outlive the object.
  BlocksOfTurns(const ChatTemplate& chat_template, const EvenkeelChat& chat, size_t num_messages,
                std::string_view text, std::span<const TextRange> blocks)
      : chat_template_(chat_template), chat_(chat), text_(text), blocks_(blocks), counts_(num_messages + 1) {
    counts_.front() = {0, true};
    counts_.back() = {blocks.size(), true};
  }

  // The blocks of `message`. `next`: the assistant's message after it, or the number of messages. A turn may have fewer blocks
  // than alone (reasoning that is removed once others follow), so those of `next` bound them. InvalidArgument: the blocks
  // before the message change once it follows.
  absl::StatusOr<std::span<const TextRange>> Of(size_t message, size_t next) {
    EVENKEEL_ASSIGN_OR_RETURN(const Count before, CountOf(message));
    EVENKEEL_ASSIGN_OR_RETURN(const Count through, CountOf(message + 1));
    EVENKEEL_ASSIGN_OR_RETURN(const Count before_next, CountOf(next));
    const size_t end = std::min(through.blocks, before_next.blocks);
    if (!before.is_stable || !before_next.is_stable || end < before.blocks) {
      return absl::InvalidArgumentError(
          "the chat template changes the generation blocks of earlier turns once others follow, so it is not "
          "known which of them belong to this turn; use processor.labels: assistant or all");
    }
    return blocks_.subspan(before.blocks, end - before.blocks);
  }

 private:
  struct Count {
    size_t blocks = 0;
    bool is_stable = false;  // they are the first ones of the whole conversation, with the same texts
  };

  absl::StatusOr<Count> CountOf(size_t messages) {
    std::optional<Count>& count = counts_[messages];
    if (count.has_value()) return *count;
    RenderedChat part;
    EVENKEEL_RETURN_IF_ERROR(chat_template_.Render(chat_, messages, /*add_generation_prompt=*/false, part));
    // A block may be noted beyond the end of the text, where it is cut (a macro whose result is stripped).
    const auto is_same = [&](const TextRange& a, const TextRange& b) {
      return text_.substr(b.begin, b.end - b.begin)
          .starts_with(std::string_view(part.text).substr(a.begin, a.end - a.begin));
    };
    count = {part.generated.size(),
             part.generated.size() <= blocks_.size() &&
                 std::equal(part.generated.begin(), part.generated.end(), blocks_.begin(), is_same)};
    return *count;
  }

  const ChatTemplate& chat_template_;
  const EvenkeelChat& chat_;
  const std::string_view text_;
  const std::span<const TextRange> blocks_;
  std::vector<std::optional<Count>> counts_;  // of the first n messages
};

std::string_view WithoutTrailingSpace(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r\n");
  return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<TemplatedChat>> TemplatedChat::Load(const ProcessorSpec& spec,
                                                                   const Tokenizer& tokenizer,
                                                                   std::span<const MediumStyle> media,
                                                                   const Limits& limits,
                                                                   std::shared_ptr<PythonProcesses> python) {
  std::unique_ptr<TemplatedChat> out(new TemplatedChat);
  if (python != nullptr && python->description().renders) {
    if (!spec.labels.empty() && spec.labels != "assistant" && spec.labels != "all") {
      return absl::InvalidArgumentError(absl::StrCat(
          "processor.labels: ", spec.labels, " is of chat templates; ", python->description().name,
          " has render(), which decides what is trained (leave it out, or all)"));
    }
    out->python_ = std::move(python);
    out->special_tokens_ = tokenizer.special_tokens();
    out->system_ = spec.system;
    out->labels_ = spec.labels;
    out->takes_weights_ = spec.loss_weights;
    return out;
  }
  EVENKEEL_ASSIGN_OR_RETURN(out->source_, DefaultTemplate(spec.tokenizer, tokenizer, !media.empty()));
  if (out->source_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.tokenizer,
                     ": no chat template (chat_template.jinja, chat_template.json, or chat_template in "
                     "tokenizer_config.json); "
                     "add the template that the model is to be trained with, or name a style in "
                     "processor.chat of the job: "
                     "plain for texts without turns, or chatml, gemma, internvl, llama3, llava, mistral, "
                     "pixtral, qwen2_audio, "
                     "vicuna"));
  }
  out->special_tokens_ = tokenizer.special_tokens();
  const ChatTemplateSettings settings{.variables = tokenizer.variables(),
                                      .date = spec.date,
                                      .special_tokens = out->special_tokens_,
                                      .max_string_bytes = 8 * limits.max_text_bytes,
                                      .max_output_bytes = limits.max_text_bytes};
  const auto load = [&](std::string_view source) {
    auto loaded = ChatTemplate::Load(source, settings);
    if (!loaded.ok()) loaded = AddContext(loaded.status(), spec.tokenizer);
    return loaded;
  };
  EVENKEEL_ASSIGN_OR_RETURN(out->default_, load(out->source_));
  out->known_ = KnownTemplateOf(out->source_);
  if (out->known_ != nullptr && !FitsTokenizer(*out->known_, tokenizer)) out->known_ = nullptr;
  out->max_text_bytes_ = limits.max_text_bytes;
  if (media.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(out->source_tool_use_,
                              ReadIfThere(spec.tokenizer + "/chat_templates/tool_use.jinja"));
    if (out->source_tool_use_.empty()) out->source_tool_use_ = tokenizer.chat_template("tool_use");
    if (!out->source_tool_use_.empty()) {
      EVENKEEL_ASSIGN_OR_RETURN(out->tool_use_, load(out->source_tool_use_));
    }
  }
  for (const MediumStyle& style : media) {
    if (style.own_template.empty()) continue;
    EVENKEEL_ASSIGN_OR_RETURN(out->of_media_[style.medium], load(style.own_template));
  }
  out->media_.assign(media.begin(), media.end());
  out->system_ = spec.system;
  out->labels_ = spec.labels;
  out->takes_weights_ = spec.loss_weights;
  out->date_ = spec.date;
  const absl::Status probed = out->Probe();
  if (!probed.ok()) return AddContext(probed, spec.tokenizer);
  return out;
}

// Finds out whether the template accepts a content that is a string, and one that is a list of parts, by
// rendering a probe. A template that fails on both is assumed to accept both, so that its errors appear with
// the samples.
absl::Status TemplatedChat::Probe() {
  const auto writes = [&](std::string_view content) -> absl::StatusOr<bool> {
    const std::string json =
        absl::StrCat(R"({"messages": [{"role": "user", "content": )", std::string(content), "}]}");
    EVENKEEL_ASSIGN_OR_RETURN(const ChatTemplate::Chat chat, default_->Parse(json));
    RenderedChat out;
    const absl::Status status = default_->Render(*chat, 1, /*add_generation_prompt=*/false, out);
    if (absl::IsFailedPrecondition(status)) return status;
    return status.ok() && out.text.find(kProbe) != std::string::npos &&
           out.text.find("'type'") == std::string::npos && out.text.find("\"type\"") == std::string::npos;
  };
  EVENKEEL_ASSIGN_OR_RETURN(takes_texts_, writes(absl::StrCat("\"", std::string(kProbe), "\"")));
  EVENKEEL_ASSIGN_OR_RETURN(
      takes_parts_, writes(absl::StrCat(R"([{"type": "text", "text": ")", std::string(kProbe), "\"}]")));
  if (!takes_texts_ && !takes_parts_) takes_texts_ = takes_parts_ = true;
  return absl::OkStatus();
}

const ChatTemplate* TemplatedChat::OwnTemplate(const Conversation& conversation) const {
  for (const Turn& turn : conversation.turns) {
    for (const Span& span : turn.spans) {
      if (const auto own = of_media_.find(span.medium); own != of_media_.end()) return own->second.get();
    }
  }
  return nullptr;
}

void TemplatedChat::AppendContent(const Turn& turn, bool as_parts, std::string& out) const {
  if (as_parts || (HasMedia(turn) ? takes_parts_ : !takes_texts_)) {
    const char* separator = "[";
    for (const Span& span : turn.spans) {
      out += separator;
      separator = ", ";
      if (span.medium == Medium::kText) {
        out += R"({"type": "text", "text": )";
        AppendString(span.text, out);
      } else {
        absl::StrAppend(&out, R"({"type": ")", MediumName(span.medium).data(), "\"");
      }
      out += "}";
    }
    out += turn.spans.empty() ? "[]" : "]";
    return;
  }
  std::string text;
  for (const Span& span : turn.spans) text += span.text;
  AppendString(text, out);
}

void TemplatedChat::AppendMessages(const Conversation& conversation, bool with_system, bool as_parts,
                                   std::string& out) const {
  const char* separator = "";
  if (with_system) {
    const Span span{.text = system_};
    out += R"({"role": "system", "content": )";
    AppendContent(Turn{.role = Role::kSystem, .spans = {span}}, as_parts, out);
    out += "}";
    separator = ", ";
  }
  std::span<const ToolCall> calls = conversation.calls;
  for (const Turn& turn : conversation.turns) {
    out += separator;
    separator = ", ";
    out += R"({"role": )";
    AppendString(RoleName(turn.role), out);
    if (turn.calls == 0 || !turn.spans.empty()) {
      out += R"(, "content": )";
      AppendContent(turn, as_parts, out);
    }
    if (turn.calls != 0) AppendCalls(calls.first(turn.calls), out);
    calls = calls.subspan(turn.calls);
    out += turn.members;
    out += "}";
  }
}

std::string TemplatedChat::JsonOf(const Conversation& conversation, bool with_system, bool as_parts) const {
  std::string json = R"({"messages": [)";
  AppendMessages(conversation, with_system, as_parts, json);
  json += "]";
  const char* separator = R"(, "tools": [)";
  for (std::string_view tool : conversation.tools) {
    json += separator;
    json += tool;
    separator = ", ";
  }
  if (!conversation.tools.empty()) json += "]";
  if (!conversation.documents.empty()) json += R"(, "documents": )" + std::string(conversation.documents);
  json += "}";
  return json;
}

// Special tokens are recognised in the class's text, so a sample that spells one would get it, too.
absl::Status TemplatedChat::WriteByPython(const std::string& json, TemplatedText& out) const {
  for (const std::string& token : special_tokens_) {
    std::string spelled;
    AppendString(token, spelled);
    if (token.empty() || json.find(spelled.substr(1, spelled.size() - 2)) == std::string::npos) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the sample spells the special token '", token,
                     "', which the text of render() would turn into that token"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(PythonText rendered, python_->Render(json));
  out.text = std::move(rendered.text);
  out.spelled.clear();
  out.trained.clear();
  out.by_blocks = false;
  if (labels_ == "all") {
    if (!out.text.empty()) out.trained.push_back({{0, out.text.size()}});
    return absl::OkStatus();
  }
  for (const PythonText::Trained& range : rendered.trained) {
    if (range.weight != 1 && !takes_weights_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "render() gives the weight ", range.weight,
          ", neither 0 nor 1; processor.loss_weights: data delivers such weights to the trainer"));
    }
    out.trained.push_back({{range.begin, range.end}, range.weight});
  }
  return absl::OkStatus();
}

absl::Status TemplatedChat::Write(const Conversation& conversation, TemplatedText& out) const {
  StyledText styled;
  if (known_ != nullptr &&
      WriteInStyle(*known_, special_tokens_, conversation, system_, max_text_bytes_, styled)) {
    out = {.text = std::move(styled.text)};
    return FindTrained(conversation, out, [&](size_t turn, float weight) {
      out.trained.push_back({styled.answers[turn], weight});
      return absl::OkStatus();
    });
  }
  const bool with_system =
      !system_.empty() && (conversation.turns.empty() || conversation.turns[0].role != Role::kSystem);
  const ChatTemplate* const own = OwnTemplate(conversation);
  const std::string json = JsonOf(conversation, with_system, /*as_parts=*/own != nullptr);
  if (python_ != nullptr) return WriteByPython(json, out);
  const bool by_tools = tool_use_ != nullptr && !conversation.tools.empty();
  const ChatTemplate& chat_template = own != nullptr ? *own : by_tools ? *tool_use_ : *default_;
  EVENKEEL_ASSIGN_OR_RETURN(const ChatTemplate::Chat chat, chat_template.Parse(json));
  const size_t turns_before = with_system ? 1 : 0;
  RenderedChat rendered;
  EVENKEEL_RETURN_IF_ERROR(chat_template.Render(*chat, conversation.turns.size() + turns_before,
                                                /*add_generation_prompt=*/false, rendered));
  out.text = std::move(rendered.text);
  out.spelled = std::move(rendered.spelled);
  out.trained.clear();
  out.by_blocks = chat_template.has_generation() && labels_.empty();
  if (!out.by_blocks) {
    return FindTrainedByTemplate(chat_template, *chat, conversation, turns_before, rendered.generated, out);
  }
  for (const TextRange& block : rendered.generated) out.trained.push_back({block});
  return absl::OkStatus();
}

absl::Status TemplatedChat::FindTrainedByTemplate(const ChatTemplate& chat_template, const EvenkeelChat& chat,
                                                  const Conversation& conversation, size_t turns_before,
                                                  std::span<const TextRange> blocks,
                                                  TemplatedText& out) const {
  const size_t num_messages = conversation.turns.size() + turns_before;
  BlocksOfTurns blocks_of_turns(chat_template, chat, num_messages, out.text, blocks);
  return FindTrained(conversation, out, [&](size_t turn, float weight) -> absl::Status {
    const size_t message = turn + turns_before;
    if (chat_template.has_generation()) {
      const size_t next = turns_before + NextAssistant(conversation.turns, turn);
      EVENKEEL_ASSIGN_OR_RETURN(const std::span<const TextRange> own, blocks_of_turns.Of(message, next));
      for (const TextRange& block : own) {
        if (block.begin < block.end) out.trained.push_back({block, weight});
      }
      return absl::OkStatus();
    }
    EVENKEEL_ASSIGN_OR_RETURN(const TextRange range,
                              RangeOfTurn(chat_template, chat, message, num_messages, out));
    out.trained.push_back({range, weight});
    return absl::OkStatus();
  });
}

absl::Status TemplatedChat::FindTrained(
    const Conversation& conversation, TemplatedText& out,
    absl::FunctionRef<absl::Status(size_t turn, float weight)> add_turn) const {
  if (labels_ == "all") {
    out.trained.push_back({{0, out.text.size()}});
    return absl::OkStatus();
  }
  const std::vector<Turn>& turns = conversation.turns;
  size_t last = turns.size();
  for (size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].role == Role::kAssistant) last = i;
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    float weight = 1;
    if (labels_ == "data") {
      const absl::StatusOr<float> said = WeightOf(turns[i], takes_weights_);
      if (!said.ok()) return AddContext(said.status(), absl::StrCat("turn ", i));
      weight = *said;
      if (weight == 0) continue;
    } else if (turns[i].role != Role::kAssistant || (labels_ == "last_assistant" && i != last)) {
      continue;
    }
    const absl::Status added = add_turn(i, weight);
    if (!added.ok()) return AddContext(added, absl::StrCat("turn ", i));
  }
  return absl::OkStatus();
}

// The end of the last special token in `within` that the template wrote and that only white space follows;
// else the end of `within`. The white space is not trained: the template writes it, not the model.
uint64_t TemplatedChat::LastSpecialEnd(std::string_view text, std::span<const uint64_t> spelled,
                                       TextRange within) const {
  const std::string_view part = WithoutTrailingSpace(text.substr(within.begin, within.end - within.begin));
  for (const std::string& token : special_tokens_) {
    if (token.empty() || !part.ends_with(token)) continue;
    const uint64_t begin = within.begin + part.size() - token.size();
    if (!std::binary_search(spelled.begin(), spelled.end(), begin)) return within.begin + part.size();
  }
  return within.end;
}

// The assistant's turn in the whole text: rendered once up to this turn with a generation prompt, which gives
// its beginning, and once including it, which gives its end.
absl::StatusOr<TextRange> TemplatedChat::RangeOfTurn(const ChatTemplate& chat_template,
                                                     const EvenkeelChat& chat, size_t message,
                                                     size_t num_messages, const TemplatedText& whole) const {
  constexpr char kAdvice[] =
      "so it cannot be determined what is trained; use processor.labels: last_assistant or all, or a "
      "template with "
      "{% generation %} blocks";
  RenderedChat before, through;
  EVENKEEL_RETURN_IF_ERROR(chat_template.Render(chat, message, /*add_generation_prompt=*/true, before));
  if (!whole.text.starts_with(before.text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the chat template changes the turns before this one once it follows, ", kAdvice));
  }
  const uint64_t begin = before.text.size();
  if (message + 1 == num_messages) {
    const uint64_t end = whole.text.size();
    return TextRange{begin, LastSpecialEnd(whole.text, whole.spelled, {begin, end})};
  }
  EVENKEEL_RETURN_IF_ERROR(chat_template.Render(chat, message + 1, /*add_generation_prompt=*/false, through));
  if (whole.text.starts_with(through.text) && through.text.size() >= begin)
    return TextRange{begin, LastSpecialEnd(whole.text, whole.spelled, {begin, through.text.size()})};
  // The turn lost its beginning once others followed it. The rest ends with the same special token as before.
  // Take the first occurrence for which the whole text up to it is a suffix of the turn as rendered alone.
  if (through.text.starts_with(before.text)) {
    const uint64_t through_end = LastSpecialEnd(through.text, through.spelled, {begin, through.text.size()});
    const std::string_view own = std::string_view(through.text).substr(begin, through_end - begin);
    for (const std::string& token : special_tokens_) {
      if (token.empty() || !own.ends_with(token)) continue;
      for (size_t at = whole.text.find(token, begin); at != std::string::npos;
           at = whole.text.find(token, at + 1)) {
        if (std::binary_search(whole.spelled.begin(), whole.spelled.end(), at)) continue;
        const std::string_view left = std::string_view(whole.text).substr(begin, at + token.size() - begin);
        if (left.size() > own.size()) break;
        if (own.ends_with(left)) return TextRange{begin, begin + left.size()};
      }
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the chat template changes this turn once others follow it, ", kAdvice));
}

bool TemplatedChat::HasBlocks() const {
  const auto has_blocks = [](const std::unique_ptr<ChatTemplate>& one) {
    return one != nullptr && one->has_generation();
  };
  return has_blocks(default_) || has_blocks(tool_use_) ||
         std::any_of(of_media_.begin(), of_media_.end(),
                     [&](const auto& own) { return has_blocks(own.second); });
}

void TemplatedChat::AddTo(CanonicalText& text) const {
  const auto digest = [](std::string_view of) {
    Digester digester;
    digester.Update(of);
    return digester.Finish().Hex();
  };
  if (!labels_.empty()) text.Add("labels", labels_);
  // Releases that cut blocks at a turn's last special token have no such line.
  if ((labels_ == "data" || labels_ == "last_assistant") && HasBlocks()) text.Add("blocks", "whole");
  if (takes_weights_) text.Add("loss_weights", std::string_view("data"));
  if (!date_.empty()) text.Add("date", date_);
  text.Add("template", python_ != nullptr ? std::string("python") : digest(source_));
  if (!source_tool_use_.empty()) text.Add("template.tool_use", digest(source_tool_use_));
  for (const MediumStyle& style : media_) {
    if (style.own_template.empty()) continue;
    text.Add(absl::StrCat("template.", MediumName(style.medium).data()), digest(style.own_template));
  }
}

}  // namespace evenkeel::preprocess
