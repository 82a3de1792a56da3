// Parses the JSON forms of a sample: Hugging Face chat `messages`, LLaVA `conversations`, and a bare list of
// the turns of either.
#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/scratch.h"
#include "core/status.h"
#include "core/utf8.h"
#include "dataset/format/json.h"
#include "dataset/format/json_text.h"
#include "dataset/format/sample_parser.h"

namespace evenkeel::dataset {
namespace {

struct MediaWords {
  Medium medium;
  std::string_view name;      // the part's type, and its key
  std::string_view type_url;  // the part's type if the key's value is an object {"url": ...}
  std::string_view mark;      // the placeholder in text
  std::string_view field;     // the key next to the text
  std::string_view fields;
};
constexpr std::array kMedia = {
    MediaWords{Medium::kImage, "image", "image_url", "<image>", "image", "images"},
    MediaWords{Medium::kAudio, "audio", "audio_url", "<audio>", "audio", "audios"},
    MediaWords{Medium::kVideo, "video", "video_url", "<video>", "video", "videos"},
};
constexpr size_t kImage = 0, kVideo = 2;  // of kMedia

// A turn, or a part of its content: the place of an error.
struct Place {
  std::string_view list;  // "messages"
  size_t turn = 0;
  std::optional<size_t> part = std::nullopt;

  std::string Text() const {
    std::string text = absl::StrCat(std::string(list), "[", turn, "]");
    if (part.has_value()) absl::StrAppend(&text, ".content[", *part, "]");
    return text;
  }
};

absl::Status Wrong(absl::string_view where, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
}
absl::Status Wrong(const Place& place, absl::string_view what) { return Wrong(place.Text(), what); }

bool SaysNothing(const JsonValue& value) {
  return value.is_null() || (value.text.empty() && value.values().empty());
}

// The member that most templates write into the text in addition to a turn's content; empty: there is none.
std::string_view WrittenMember(const JsonValue& message) {
  for (std::string_view key : {"reasoning_content", "function_call"}) {
    const JsonValue* said = message.Find(key);
    if (said != nullptr && !SaysNothing(*said)) return key;
  }
  return "";
}

// true or false as 1 or 0; a number that is 0 or that a float holds with all its precision; else nullopt.
std::optional<float> ReadWeight(const JsonValue& said) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  double value = 0;
  if (said.kind == JsonValue::Kind::kBool) return said.text == "true" ? 1.0f : 0.0f;
  if (said.kind != JsonValue::Kind::kNumber ||
      !absl::SimpleAtod(absl::string_view(said.text.data(), said.text.size()), &value)) {
    return std::nullopt;
  }
  if (value != 0 && !(value >= kLeast && value <= kMost)) return std::nullopt;
  return static_cast<float>(value);
}

// Whether a turn is trained, as datasets mark it: by `weight`, a number (0 or 1 in OpenAI's fine-tuning
// format), or by `loss`, true or false (ms-swift).
void ReadTrained(const JsonValue& from, Turn& turn) {
  for (std::string_view key : {"weight", "loss"}) {
    const JsonValue* said = from.Find(key);
    if (said == nullptr || said->is_null()) continue;
    std::optional<float> weight = ReadWeight(*said);
    if (key == "loss" && weight != 0.0f && weight != 1.0f) weight = std::nullopt;
    const TrainedByData one = !weight.has_value() ? TrainedByData::kUnclear
                              : *weight > 0       ? TrainedByData::kYes
                                                  : TrainedByData::kNo;
    turn.trained =
        turn.trained == TrainedByData::kNotSaid || turn.trained == one ? one : TrainedByData::kUnclear;
    if (key == "weight" && one == TrainedByData::kYes) turn.weight = *weight;
  }
}

}  // namespace

class TextParser::ChatParser {
 public:
  ChatParser(const Limits& limits, const FieldNames& names, TextParser& into)
      : limits_(limits), names_(names), into_(into) {
    for (size_t i = 0; i < kMedia.size(); ++i) fields_[i].names = &Emptied(into.field_names_[i]);
  }

  absl::Status Parse(const JsonValue& root) {
    Place place;
    const JsonValue* turns = FindTurns(root, place);
    // With one of the two alone it is metadata, as other JSON in a tar is.
    if (turns == nullptr && Given(root, "chosen") != nullptr && Given(root, "rejected") != nullptr &&
        MayBePair())
      return ParsePair(root);
    if (turns == nullptr) {
      return absl::NotFoundError(names_.messages.empty()
                                     ? "JSON without 'messages', 'conversations' or a list of turns"
                                     : absl::StrCat("JSON without '", names_.messages, "'"));
    }
    EVENKEEL_RETURN_IF_ERROR(ReadTools(root));
    EVENKEEL_RETURN_IF_ERROR(ReadDocuments(root));
    EVENKEEL_RETURN_IF_ERROR(ReadFields(root));
    if (!turns->is_array() || turns->values().empty())
      return Wrong(std::string(place.list), "not a list of turns");
    EVENKEEL_RETURN_IF_ERROR(ReadSystem(root));
    image_marks_are_videos_ = ImageMarksAreVideos(*turns);
    FindUnplaced({turns});
    EVENKEEL_RETURN_IF_ERROR(ReadTurns(*turns, place.list));
    return CheckRead();
  }

  absl::Status ParseRow(const JsonValue& root) {
    is_row_ = true;
    if (!names_.chosen.empty()) return ParsePair(root);
    if (!names_.prompt.empty()) return ParsePrompt(root);
    Place place;
    if (names_.text.empty() && FindTurns(root, place) != nullptr) return Parse(root);
    if (!names_.messages.empty()) return Parse(root);
    const std::string_view name = names_.text.empty() ? std::string_view("text") : names_.text;
    const JsonValue* given = root.Find(name);
    const bool has_answer = Given(root, "chosen") != nullptr || Given(root, "rejected") != nullptr;
    if (MayBePair() && has_answer && (given == nullptr || SaysNothing(*given))) return ParsePair(root);
    EVENKEEL_ASSIGN_OR_RETURN(const std::string_view text, TextOf(root, name));
    EVENKEEL_RETURN_IF_ERROR(ReadFields(root));
    into_.parsed_.conversation.plain = true;
    Turn& turn = into_.AddTurn(Role::kAssistant);
    EVENKEEL_RETURN_IF_ERROR(AddMediaOfFields("", turn));
    turn.spans.push_back({Medium::kText, text, 0});
    return absl::OkStatus();
  }

 private:
  // Not if the job says what else a row is.
  bool MayBePair() const { return names_.messages.empty() && names_.text.empty() && names_.prompt.empty(); }

  static const JsonValue* Given(const JsonValue& root, std::string_view name) {
    const JsonValue* value = root.Find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  // The same JSON, written in the same order.
  static bool Same(const JsonValue& a, const JsonValue& b) {
    if (a.extent != b.extent) return false;
    for (uint32_t i = 0; i < a.extent; ++i) {
      const JsonValue &x = (&a)[i], &y = (&b)[i];
      if (x.kind != y.kind || x.text != y.text || x.extent != y.extent || (i > 0 && x.key != y.key))
        return false;
    }
    return true;
  }

  // Two answers to one prompt, as TRL reads them: texts, or lists of messages. A prompt of the other form than they counts
  // as not given; without one, it is what they have in common at their begin, but not the last message or character.
  absl::Status ParsePair(const JsonValue& root) {
    into_.is_pair_ = true;
    const std::string chosen_name = names_.chosen.empty() ? "chosen" : names_.chosen;
    const std::string rejected_name = names_.rejected.empty() ? "rejected" : names_.rejected;
    const JsonValue *chosen = Given(root, chosen_name), *rejected = Given(root, rejected_name);
    for (const auto& [name, value] : {std::pair(chosen_name, chosen), {rejected_name, rejected}}) {
      if (value == nullptr) return Wrong("a preference pair", absl::StrCat("no '", name, "'"));
      if (chosen->kind != value->kind)
        return Wrong(name, absl::StrCat("is not of the form of '", chosen_name,
                                        "': both are texts or lists of messages"));
      if (!value->is_string() && (!value->is_array() || value->values().empty()))
        return Wrong(name, "neither a text nor a list of messages");
    }
    const bool are_texts = chosen->is_string();
    const JsonValue* prompt = Given(root, names_.prompt.empty() ? "prompt" : std::string_view(names_.prompt));
    if (prompt != nullptr && prompt->is_string() != are_texts) prompt = nullptr;
    EVENKEEL_RETURN_IF_ERROR(ReadFields(root));
    if (are_texts) {
      EVENKEEL_RETURN_IF_ERROR(PairOfTexts(prompt, chosen->text, rejected->text));
    } else {
      EVENKEEL_RETURN_IF_ERROR(ReadTools(root));
      EVENKEEL_RETURN_IF_ERROR(ReadDocuments(root));
      EVENKEEL_RETURN_IF_ERROR(PairOfChats(root, prompt, *chosen, *rejected));
    }
    return CheckPairedMedia();
  }

  // The length of what two texts have in common, in whole characters and without a space at its end, as TRL counts it.
  static size_t CommonText(std::string_view a, std::string_view b) {
    size_t at = 0;
    while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
    if (at == std::min(a.size(), b.size()) && at > 0) --at;
    const auto goes_on = [](std::string_view text, size_t i) {
      return i < text.size() && (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80;
    };
    while (at > 0 && (goes_on(a, at) || goes_on(b, at))) --at;
    return at > 0 && a[at - 1] == ' ' ? at - 1 : at;
  }

  absl::Status PairOfTexts(const JsonValue* prompt, std::string_view chosen, std::string_view rejected) {
    std::string_view common;
    if (prompt == nullptr) {
      common = chosen.substr(0, CommonText(chosen, rejected));
      chosen.remove_prefix(common.size());
      rejected.remove_prefix(common.size());
    } else {
      common = prompt->text;
    }
    if (common.empty())
      return Wrong("a preference pair", "'chosen' and 'rejected' have no 'prompt' and no begin in common");
    Conversation& conversation = into_.parsed_.conversation;
    conversation.plain = true;
    conversation.prompt = 1;
    for (std::string_view answer : {chosen, rejected}) {
      BeginSequence();
      Turn& turn = into_.AddTurn(Role::kAssistant);
      EVENKEEL_RETURN_IF_ERROR(AddMediaOfFields(common, turn));
      EVENKEEL_RETURN_IF_ERROR(AddMarkedText(common, /*only_fields=*/true, {"prompt"}, turn));
      AddText(answer, into_.AddTurn(Role::kAssistant));
      EVENKEEL_RETURN_IF_ERROR(CheckRead());
    }
    return absl::OkStatus();
  }

  absl::Status PairOfChats(const JsonValue& root, const JsonValue* prompt, const JsonValue& chosen,
                           const JsonValue& rejected) {
    size_t common = 0;  // messages that begin both
    if (prompt == nullptr) {
      auto a = chosen.values().begin(), b = rejected.values().begin();
      const auto a_end = chosen.values().end(), b_end = rejected.values().end();
      for (; a != a_end && b != b_end && Same(*a, *b); ++a, ++b) ++common;
      if (common > 0 && (a == a_end || b == b_end)) --common;
      if (common == 0) {
        return Wrong("a preference pair",
                     "'chosen' and 'rejected' have no 'prompt' and no first messages in common");
      }
    } else if (!prompt->is_array()) {
      return Wrong("prompt", "neither a text nor a list of messages");
    }
    FindUnplaced({prompt, &chosen, &rejected});
    for (const auto& [name, answer] : {std::pair("chosen", &chosen), {"rejected", &rejected}}) {
      BeginSequence();
      const size_t first = into_.parsed_.conversation.turns.size();
      EVENKEEL_RETURN_IF_ERROR(ReadSystem(root));
      size_t of_prompt = has_system_ ? 1 : 0;
      if (prompt != nullptr) {
        EVENKEEL_RETURN_IF_ERROR(ReadTurns(*prompt, "prompt"));
        of_prompt = into_.parsed_.conversation.turns.size() - first;
      }
      EVENKEEL_RETURN_IF_ERROR(ReadTurns(*answer, name));
      EVENKEEL_RETURN_IF_ERROR(CheckAnswer(name, first, of_prompt + common));
      EVENKEEL_RETURN_IF_ERROR(CheckRead(first));
    }
    return absl::OkStatus();
  }

  // Both sequences have all of the row's media.
  void BeginSequence() {
    Conversation& conversation = into_.parsed_.conversation;
    conversation.rejected = static_cast<uint32_t>(conversation.turns.size());
    has_system_ = false;
    for (Field& field : fields_) field.used = 0;
  }

  absl::Status ReadTurns(const JsonValue& turns, std::string_view list) {
    Place place{.list = list};
    for (const JsonValue& turn : turns.values()) {
      EVENKEEL_RETURN_IF_ERROR(IsLlavaTurn(turn, list) ? ReadLlavaTurn(turn, place)
                                                       : ReadMessage(turn, place));
      ++place.turn;
    }
    return absl::OkStatus();
  }

  absl::Status CheckAnswer(std::string_view name, size_t first, size_t prompt) {
    Conversation& conversation = into_.parsed_.conversation;
    conversation.prompt = static_cast<uint32_t>(prompt);
    for (size_t i = first + prompt; i < conversation.turns.size(); ++i)
      if (conversation.turns[i].role == Role::kAssistant) return absl::OkStatus();
    return Wrong(std::string(name), "no turn of the assistant after the prompt");
  }

  absl::Status CheckPairedMedia() const {
    const std::vector<MediaReference>& all = into_.parsed_.references;
    const auto half = all.begin() + static_cast<ptrdiff_t>(all.size() / 2);
    const auto same = [](const MediaReference& a, const MediaReference& b) {
      return a.medium == b.medium && a.name == b.name;
    };
    if (std::equal(all.begin(), half, half, all.end(), same)) return absl::OkStatus();
    return Wrong("a preference pair", "'chosen' and 'rejected' have different media");
  }

  // A question with the media of the row, and its answer.
  absl::Status ParsePrompt(const JsonValue& root) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::string_view prompt, TextOf(root, names_.prompt));
    EVENKEEL_ASSIGN_OR_RETURN(const std::string_view answer, TextOf(root, names_.answer));
    EVENKEEL_RETURN_IF_ERROR(ReadFields(root));
    EVENKEEL_RETURN_IF_ERROR(ReadSystem(root));
    Turn& turn = into_.AddTurn(Role::kUser);
    EVENKEEL_RETURN_IF_ERROR(AddMediaOfFields(prompt, turn));
    EVENKEEL_RETURN_IF_ERROR(AddMarkedText(prompt, /*only_fields=*/true, {names_.prompt}, turn));
    AddText(answer, into_.AddTurn(Role::kAssistant));
    return CheckRead();
  }

  static absl::StatusOr<std::string_view> TextOf(const JsonValue& root, std::string_view name) {
    const JsonValue* text = root.Find(name);
    const std::string quoted = absl::StrCat("'", std::string(name), "'");
    if (text == nullptr || text->is_null()) {
      return absl::NotFoundError(
          absl::StrCat("a row without ", quoted,
                       name == "text" ? " and without a chat; the dataset's fields name others" : ""));
    }
    if (!text->is_string()) return Wrong(std::string(name), "not a text");
    if (text->text.empty()) return absl::NotFoundError(absl::StrCat(quoted, " is empty"));
    return text->text;
  }

  // Adds the media of fields for which `text` has no placeholder.
  absl::Status AddMediaOfFields(std::string_view text, Turn& turn) {
    for (size_t i = 0; i < kMedia.size(); ++i) {
      if (text.find(kMedia[i].mark) != std::string_view::npos) continue;
      EVENKEEL_RETURN_IF_ERROR(AddUnused(i, {kMedia[i].field}, turn));
    }
    return absl::OkStatus();
  }

  // Adds the media of a field that no placeholder has used.
  absl::Status AddUnused(size_t which, const Place& where, Turn& turn) {
    while (fields_[which].used < fields_[which].names->size())
      EVENKEEL_RETURN_IF_ERROR(AddMarked(which, where, turn));
    return absl::OkStatus();
  }

  absl::Status ReadFields(const JsonValue& root) {
    const std::array<std::string_view, kMedia.size()> named = {names_.image, names_.audio, names_.video};
    for (size_t i = 0; i < kMedia.size(); ++i)
      EVENKEEL_RETURN_IF_ERROR(ReadField(root, kMedia[i], named[i], fields_[i]));
    return absl::OkStatus();
  }

  // After the turns: no system prompt twice, and a placeholder for every entry of a field.
  absl::Status CheckRead(size_t first_turn = 0) const {
    if (has_system_ && into_.parsed_.conversation.turns[first_turn + 1].role == Role::kSystem)
      return Wrong("the chat", "'system' in addition to a system turn");
    for (size_t i = 0; i < kMedia.size(); ++i) {
      const size_t named = fields_[i].names->size();
      if (fields_[i].used < named && !(fields_[i].used == 0 && named_[i])) {
        return Wrong(std::string(kMedia[i].fields), absl::StrCat(named, " named, but the text has ",
                                                                 fields_[i].used, " placeholders for them"));
      }
    }
    return absl::OkStatus();
  }

  // One `image`/`images` field, and how many of its names the placeholders have used.
  struct Field {
    bool present = false;
    std::vector<std::string_view>* names = nullptr;
    size_t used = 0;
  };

  // Notes the media that a field names and that have no place in the lists of turns.
  void FindUnplaced(std::initializer_list<const JsonValue*> lists) {
    for (size_t i = 0; i < kMedia.size(); ++i) {
      unplaced_[i] = !fields_[i].names->empty();
      for (const JsonValue* turns : lists) unplaced_[i] &= turns == nullptr || !HasPlace(*turns, kMedia[i]);
    }
  }

  static bool HasPlace(const JsonValue& turns, const MediaWords& words) {
    for (const JsonValue& turn : turns.values()) {
      const JsonValue* content = turn.Find("content");
      if (content == nullptr) continue;
      if (content->text.find(words.mark) != std::string_view::npos) return true;
      for (const JsonValue& part : content->values()) {
        const JsonValue* type = part.Find("type");
        if (type != nullptr && (type->text == words.name || type->text == words.type_url)) return true;
      }
    }
    return false;
  }

  // Decided by the turn's own keys; by the name of its list if it has neither key.
  static bool IsLlavaTurn(const JsonValue& turn, std::string_view list) {
    if (turn.Find("role") != nullptr) return false;
    return turn.Find("from") != nullptr || list == "conversations";
  }

  // Finds the list of a chat's turns and its name: "messages", "conversations", or the whole document, since
  // Energon's datasets write either. Null: there is none.
  const JsonValue* FindTurns(const JsonValue& root, Place& place) const {
    for (std::string_view list : {std::string_view(names_.messages), std::string_view("messages"),
                                  std::string_view("conversations")}) {
      // A name of the job replaces the defaults.
      if (list.empty() || (!names_.messages.empty() && list != names_.messages)) continue;
      const JsonValue* turns = root.Find(list);
      if (turns == nullptr || turns->is_null()) continue;
      place.list = list;
      return turns;
    }
    if (!root.is_array() || root.values().empty() || !names_.messages.empty()) return nullptr;
    const JsonValue& first = *root.values().begin();
    place.list = "turns";
    return first.Find("from") != nullptr || first.Find("role") != nullptr ? &root : nullptr;
  }

  // Reads a system prompt next to the turns.
  absl::Status ReadSystem(const JsonValue& root) {
    const JsonValue* system = root.Find("system");
    if (system == nullptr || system->is_null()) return absl::OkStatus();
    if (!system->is_string()) return Wrong("system", "not a text");
    if (system->text.empty()) return absl::OkStatus();
    has_system_ = true;
    AddText(system->text, into_.AddTurn(Role::kSystem));
    return absl::OkStatus();
  }

  // Writes descriptions of tools as templates write them, by `tojson` of transformers.
  absl::Status ReadTools(const JsonValue& root) {
    const JsonValue* tools = root.Find("tools");
    if (tools == nullptr || SaysNothing(*tools)) return absl::OkStatus();
    if (!tools->is_array())
      return Wrong("the chat",
                   "'tools' is not a list of objects; if it is a string with JSON, write the list itself");
    for (const JsonValue& tool : tools->values()) {
      if (!tool.is_object()) return Wrong("the chat", "'tools' is not a list of objects");
      const absl::StatusOr<std::string_view> written = Written(tool);
      if (!written.ok()) return AddContext(written.status(), "the chat: 'tools'");
      into_.parsed_.conversation.tools.push_back(*written);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string_view> Written(const JsonValue& value) {
    std::string& text = into_.AddWritten();
    EVENKEEL_RETURN_IF_ERROR(AppendAsPython(value, text));
    return text;
  }

  // The members of a message that are not read here are kept as JSON for the checkpoint's template.
  absl::Status ReadMembers(const JsonValue& message, const Place& where, Turn& turn) {
    std::string* text = nullptr;
    for (const JsonValue& member : message.values()) {
      bool is_read = false;
      for (std::string_view key : {"role", "content", "tool_calls", "weight", "loss"})
        is_read |= member.key == key;
      if (is_read || member.is_null()) continue;
      if (text == nullptr) text = &into_.AddWritten();
      text->append(", ");
      AppendStringAsPython(member.key, *text);
      text->append(": ");
      const absl::Status written = AppendAsPython(member, *text);
      if (!written.ok())
        return AddContext(written, absl::StrCat(where.Text(), ": '", Printable(member.key), "'"));
    }
    if (text != nullptr) turn.members = *text;
    return absl::OkStatus();
  }

  // A list of objects, which templates for retrieval write into the prompt.
  absl::Status ReadDocuments(const JsonValue& root) {
    const JsonValue* documents = root.Find("documents");
    if (documents == nullptr || !documents->is_array() || SaysNothing(*documents)) return absl::OkStatus();
    EVENKEEL_ASSIGN_OR_RETURN(into_.parsed_.conversation.documents, Written(*documents));
    return absl::OkStatus();
  }

  // {"function": {"name": "f", "arguments": {}}}, or only the inner object.
  absl::Status ReadCalls(const JsonValue& message, const Place& where, Turn& turn) {
    const JsonValue* calls = message.Find("tool_calls");
    if (calls == nullptr || SaysNothing(*calls)) return absl::OkStatus();
    if (turn.role != Role::kAssistant)
      return Wrong(where, "'tool_calls' in a turn that is not the assistant's");
    if (!calls->is_array()) return Wrong(where, "'tool_calls' is not a list of objects");
    for (const JsonValue& element : calls->values()) {
      const JsonValue* function = element.Find("function");
      const JsonValue& call = function != nullptr && !SaysNothing(*function) ? *function : element;
      const JsonValue* name = call.Find("name");
      const JsonValue* arguments = call.Find("arguments");
      const auto which = [&] { return absl::StrCat("'tool_calls'[", turn.calls, "]"); };
      if (name == nullptr || !name->is_string()) return Wrong(where, which() + " has no text 'name'");
      if (arguments == nullptr || !(arguments->is_object() || arguments->is_string()))
        return Wrong(where, which() + " has no object 'arguments'");
      absl::StatusOr<std::string_view> written = std::string_view();
      if (arguments->is_object()) written = Written(*arguments);
      const absl::StatusOr<std::string_view> whole = written.ok() ? Written(element) : written;
      if (!whole.ok()) return AddContext(whole.status(), where.Text() + ": " + which());
      into_.parsed_.conversation.calls.push_back({name->text, *written, *whole});
      ++turn.calls;
    }
    return absl::OkStatus();
  }

  // LLaVA's video datasets write "<image>" as the placeholder of a video that a field names.
  bool ImageMarksAreVideos(const JsonValue& turns) const {
    if (fields_[kImage].present || fields_[kVideo].names->empty()) return false;
    for (const JsonValue& turn : turns.values()) {
      const JsonValue* text = turn.Find("value");
      if (text != nullptr && text->text.find(kMedia[kVideo].mark) != std::string_view::npos) return false;
    }
    return true;
  }

  // A name, a list of names or of objects with a name, in rows also one object, in the field `named` or else in those of `words`.
  absl::Status ReadField(const JsonValue& root, const MediaWords& words, std::string_view named,
                         Field& field) const {
    const auto keys =
        named.empty() ? std::array{words.field, words.fields} : std::array{named, std::string_view()};
    for (std::string_view key : keys) {
      const JsonValue* value = key.empty() ? nullptr : root.Find(key);
      if (value == nullptr || value->is_null()) continue;
      field.present = true;
      const bool is_one = value->is_string() || (is_row_ && value->is_object());
      if (const auto name = is_one ? NameIn(*value, words) : std::nullopt) {
        field.names->push_back(*name);
      } else if (value->is_array()) {
        for (const JsonValue& element : value->values()) {
          const std::optional<std::string_view> name = NameIn(element, words);
          if (!name) return Wrong(std::string(key), "not a list of names");
          field.names->push_back(*name);
        }
      } else {
        return Wrong(std::string(key), "neither a name nor a list of names");
      }
    }
    return absl::OkStatus();
  }

  // "0.jpg", {"path": "0.jpg"}, {"url": "0.jpg"}, {"image": "0.jpg"}, {"image_url": {"url": "0.jpg"}}.
  static std::optional<std::string_view> NameIn(const JsonValue& value, const MediaWords& words) {
    if (value.is_string()) return value.text;
    for (std::string_view key :
         {words.name, std::string_view("path"), std::string_view("url"), words.type_url}) {
      const JsonValue* inner = value.Find(key);
      if (inner == nullptr) continue;
      if (inner->is_string()) return inner->text;
      if (inner->is_object()) return NameIn(*inner, words);  // depth is bounded by the parser
    }
    return std::nullopt;
  }

  static std::optional<Role> RoleOf(std::string_view name) {
    if (name == "system") return Role::kSystem;
    if (name == "user" || name == "human") return Role::kUser;
    if (name == "assistant" || name == "gpt") return Role::kAssistant;
    if (name == "tool" || name == "observation" || name == "function") return Role::kTool;
    return std::nullopt;
  }

  static absl::StatusOr<Role> ReadRole(const JsonValue& turn, std::string_view key, const Place& where) {
    const JsonValue* value = turn.Find(key);
    if (value == nullptr || !value->is_string())
      return Wrong(where, absl::StrCat("no '", std::string(key), "'"));
    std::optional<Role> role = RoleOf(value->text);
    if (!role) return Wrong(where, absl::StrCat("unknown role '", Printable(value->text), "'"));
    return *role;
  }

  absl::Status AddMedium(const MediaReference& reference, Turn& turn) {
    std::vector<MediaReference>& references = into_.parsed_.references;
    if (references.size() >= limits_.max_items) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more items than limits.max_items ", limits_.max_items));
    }
    turn.spans.push_back({reference.medium, "", static_cast<uint32_t>(references.size())});
    references.push_back(reference);
    return absl::OkStatus();
  }

  static void AddText(std::string_view text, Turn& turn) {
    if (!text.empty()) turn.spans.push_back({Medium::kText, text, 0});
  }

  // The next placeholder at or after `at`; npos: there is none. `only_fields`: only those of media that have
  // a field.
  size_t FindMark(std::string_view text, size_t at, bool only_fields, size_t* which) const {
    for (at = text.find('<', at); at != std::string_view::npos; at = text.find('<', at + 1)) {
      for (size_t i = 0; i < kMedia.size(); ++i) {
        if (only_fields && !fields_[i].present) continue;
        if (text.substr(at, kMedia[i].mark.size()) != kMedia[i].mark) continue;
        *which = i;
        return at;
      }
    }
    return at;
  }

  // Adds an item for a placeholder without a name: it gets the next name of the field, if any is left.
  absl::Status AddMarked(size_t which, const Place& where, Turn& turn) {
    Field& field = fields_[which];
    MediaReference reference{kMedia[which].medium, std::nullopt, true};
    if (field.present) {
      if (field.used == field.names->size()) {
        return Wrong(where, absl::StrCat("more placeholders for ", std::string(kMedia[which].name),
                                         " than the ", field.names->size(), " that '",
                                         std::string(kMedia[which].fields), "' names"));
      }
      reference.name = (*field.names)[field.used++];
    }
    return AddMedium(reference, turn);
  }

  absl::Status AddMarkedText(std::string_view text, bool only_fields, const Place& where, Turn& turn) {
    size_t begin = 0, which = 0;
    for (;;) {
      size_t mark = FindMark(text, begin, only_fields, &which);
      if (mark == std::string_view::npos) break;
      AddText(text.substr(begin, mark - begin), turn);
      const bool is_video = which == kImage && image_marks_are_videos_;
      EVENKEEL_RETURN_IF_ERROR(AddMarked(is_video ? kVideo : which, where, turn));
      begin = mark + kMedia[which].mark.size();
    }
    AddText(text.substr(begin), turn);
    return absl::OkStatus();
  }

  absl::Status ReadLlavaTurn(const JsonValue& value, const Place& where) {
    EVENKEEL_ASSIGN_OR_RETURN(Role role, ReadRole(value, "from", where));
    const JsonValue* text = value.Find("value");
    if (text == nullptr || !text->is_string()) return Wrong(where, "no text 'value'");
    Turn& turn = into_.AddTurn(role);
    ReadTrained(value, turn);
    return AddMarkedText(text->text, /*only_fields=*/false, where, turn);
  }

  absl::Status ReadMessage(const JsonValue& message, const Place& where) {
    EVENKEEL_ASSIGN_OR_RETURN(Role role, ReadRole(message, "role", where));
    const JsonValue* content = message.Find("content");
    Turn& turn = into_.AddTurn(role);
    ReadTrained(message, turn);
    turn.unwritten = WrittenMember(message);
    EVENKEEL_RETURN_IF_ERROR(ReadMembers(message, where, turn));
    EVENKEEL_RETURN_IF_ERROR(ReadCalls(message, where, turn));
    if (turn.calls != 0 && (content == nullptr || content->is_null())) return absl::OkStatus();
    if (content == nullptr) return Wrong(where, "no 'content'");
    // TRL and ms-swift place media without a place in front of the user's first text.
    if (role == Role::kUser && content->is_string()) {
      for (size_t i = 0; i < kMedia.size(); ++i)
        if (unplaced_[i]) EVENKEEL_RETURN_IF_ERROR(AddUnused(i, where, turn));
    }
    // Without fields next to the messages, "<image>" in a string is ordinary text.
    if (content->is_string()) return AddMarkedText(content->text, /*only_fields=*/true, where, turn);
    if (!content->is_array()) return Wrong(where, "'content' is neither a text nor a list of parts");
    Place part{where.list, where.turn, 0};
    for (const JsonValue& value : content->values()) {
      EVENKEEL_RETURN_IF_ERROR(ReadPart(value, part, turn));
      ++*part.part;
    }
    return absl::OkStatus();
  }

  absl::Status ReadPart(const JsonValue& part, const Place& where, Turn& turn) {
    const JsonValue* type = part.Find("type");
    if (type == nullptr || !type->is_string()) return Wrong(where, "no 'type'");
    if (type->text == "text") {
      const JsonValue* text = part.Find("text");
      if (text == nullptr || !text->is_string()) return Wrong(where, "no 'text'");
      // Also if it is empty, since templates may write something after every part.
      turn.spans.push_back({Medium::kText, text->text, 0});
      return absl::OkStatus();
    }
    for (size_t i = 0; i < kMedia.size(); ++i) {
      if (type->text != kMedia[i].name && type->text != kMedia[i].type_url) continue;
      const std::optional<std::string_view> name = NameIn(part, kMedia[i]);
      if (name) {
        named_[i] = true;
        return AddMedium({kMedia[i].medium, name, false}, turn);
      }
      return AddMarked(i, where, turn);
    }
    return Wrong(where, absl::StrCat("unknown type '", Printable(type->text), "'"));
  }

  const Limits& limits_;
  const FieldNames& names_;
  TextParser& into_;
  std::array<Field, kMedia.size()> fields_;
  // media whose parts have names of their own: the field only repeats them
  std::array<bool, kMedia.size()> named_{};
  std::array<bool, kMedia.size()> unplaced_{};  // media of a field for which no turn has a place
  bool image_marks_are_videos_ = false;
  bool is_row_ = false;
  bool has_system_ = false;  // next to the turns; it becomes the first turn
};

absl::StatusOr<const JsonValue*> TextParser::ParseJson(std::string_view json, const Limits& limits) {
  if (json.size() > limits.max_text_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(json.size(), " bytes of text; limits.max_text_bytes is ", limits.max_text_bytes));
  }
  Clear();
  EVENKEEL_ASSIGN_OR_RETURN(root_, json_.Parse(json, limits.max_json_depth));
  return root_;
}

absl::StatusOr<const ParsedText*> TextParser::ParseChat(std::string_view json, const Limits& limits) {
  EVENKEEL_ASSIGN_OR_RETURN(const JsonValue* root, ParseJson(json, limits));
  EVENKEEL_RETURN_IF_ERROR(ChatParser(limits, FieldNames(), *this).Parse(*root));
  return &parsed_;
}

absl::StatusOr<const ParsedText*> TextParser::ParseRow(std::string_view json, const FieldNames& fields,
                                                       const Limits& limits) {
  EVENKEEL_ASSIGN_OR_RETURN(const JsonValue* root, ParseJson(json, limits));
  EVENKEEL_RETURN_IF_ERROR(ChatParser(limits, fields, *this).ParseRow(*root));
  return &parsed_;
}

}  // namespace evenkeel::dataset
