// The JSON forms of a sample: Hugging Face chat `messages` and LLaVA `conversations`.
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "core/utf8.h"
#include "dataset/json.h"
#include "dataset/sample_parser.h"

namespace evenkeel::dataset {
namespace {

struct MediaWords {
  Medium medium;
  std::string_view name;      // of a part's type and key
  std::string_view type_url;  // of a part's type where the key is an object {"url": ...}
  std::string_view mark;      // in text
  std::string_view field;     // beside the text
  std::string_view fields;
};
constexpr std::array kMedia = {
    MediaWords{Medium::kImage, "image", "image_url", "<image>", "image", "images"},
    MediaWords{Medium::kAudio, "audio", "audio_url", "<audio>", "audio", "audios"},
    MediaWords{Medium::kVideo, "video", "video_url", "<video>", "video", "videos"},
};

// One `image`/`images` field and how much of it the marks have used.
struct Field {
  bool present = false;
  std::vector<std::string> names;
  size_t used = 0;
};

class ChatParser {
 public:
  explicit ChatParser(const Limits& limits) : limits_(limits) {}

  absl::StatusOr<ParsedText> Parse(const JsonValue& root) {
    const JsonValue* messages = root.Find("messages");
    const JsonValue* conversations = root.Find("conversations");
    if (messages == nullptr && conversations == nullptr) {
      return absl::NotFoundError("JSON with neither 'messages' nor 'conversations'");
    }
    for (size_t i = 0; i < kMedia.size(); ++i)
      EVENKEEL_RETURN_IF_ERROR(ReadField(root, kMedia[i], fields_[i]));
    const JsonValue& turns = messages != nullptr ? *messages : *conversations;
    std::string where = messages != nullptr ? "messages" : "conversations";
    if (!turns.is_array() || turns.values.empty()) return Wrong(where, "not a list of turns");
    for (size_t i = 0; i < turns.values.size(); ++i) {
      std::string turn = absl::StrCat(where, "[", i, "]");
      EVENKEEL_RETURN_IF_ERROR(messages != nullptr ? ReadMessage(turns.values[i], turn)
                                                   : ReadLlavaTurn(turns.values[i], turn));
    }
    for (size_t i = 0; i < kMedia.size(); ++i) {
      if (fields_[i].used < fields_[i].names.size() && !(fields_[i].used == 0 && named_[i])) {
        return Wrong(std::string(kMedia[i].fields),
                     absl::StrCat(fields_[i].names.size(), " named, but the text has ", fields_[i].used,
                                  " places for them"));
      }
    }
    return std::move(out_);
  }

 private:
  static absl::Status Wrong(const std::string& where, const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
  }

  // A name, a list of names, or objects that hold one.
  static absl::Status ReadField(const JsonValue& root, const MediaWords& words, Field& field) {
    for (std::string_view key : {words.field, words.fields}) {
      const JsonValue* value = root.Find(key);
      if (value == nullptr || value->is_null()) continue;
      field.present = true;
      if (value->is_string()) {
        field.names.push_back(value->text);
      } else if (value->is_array()) {
        for (const JsonValue& element : value->values) {
          std::optional<std::string> name = NameIn(element, words);
          if (!name) return Wrong(std::string(key), "not a list of names");
          field.names.push_back(std::move(*name));
        }
      } else {
        return Wrong(std::string(key), "neither a name nor a list of names");
      }
    }
    return absl::OkStatus();
  }

  // "0.jpg", {"path": "0.jpg"}, {"url": "0.jpg"}, {"image": "0.jpg"}, {"image_url": {"url": "0.jpg"}}.
  static std::optional<std::string> NameIn(const JsonValue& value, const MediaWords& words) {
    if (value.is_string()) return value.text;
    for (std::string_view key :
         {words.name, std::string_view("path"), std::string_view("url"), words.type_url}) {
      const JsonValue* inner = value.Find(key);
      if (inner == nullptr) continue;
      if (inner->is_string()) return inner->text;
      if (inner->is_object()) return NameIn(*inner, words);  // as deep as the text, which is bounded
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

  static absl::StatusOr<Role> ReadRole(const JsonValue& turn, std::string_view key,
                                       const std::string& where) {
    const JsonValue* value = turn.Find(key);
    if (value == nullptr || !value->is_string())
      return Wrong(where, absl::StrCat("no '", std::string(key), "'"));
    std::optional<Role> role = RoleOf(value->text);
    if (!role) return Wrong(where, absl::StrCat("unknown role '", Printable(value->text), "'"));
    return *role;
  }

  absl::Status AddMedium(MediaReference reference, Turn& turn) {
    if (out_.references.size() >= limits_.max_items) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more items than limits.max_items ", limits_.max_items));
    }
    turn.spans.push_back({reference.medium, "", static_cast<uint32_t>(out_.references.size())});
    out_.references.push_back(std::move(reference));
    return absl::OkStatus();
  }

  static void AddText(std::string_view text, Turn& turn) {
    if (!text.empty()) turn.spans.push_back({Medium::kText, std::string(text), 0});
  }

  // The next mark at or after `at`; npos where there is none. `only_fields`: only of media that have a field.
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

  // A place without a name of its own: the next name of the field, where there is one.
  absl::Status AddMarked(size_t which, const std::string& where, Turn& turn) {
    Field& field = fields_[which];
    MediaReference reference{kMedia[which].medium, std::nullopt, true};
    if (field.present) {
      if (field.used == field.names.size()) {
        return Wrong(
            where, absl::StrCat("more places for ", std::string(kMedia[which].name), " than the ",
                                field.names.size(), " that '", std::string(kMedia[which].fields), "' names"));
      }
      reference.name = field.names[field.used++];
    }
    return AddMedium(std::move(reference), turn);
  }

  absl::Status AddMarkedText(std::string_view text, bool only_fields, const std::string& where, Turn& turn) {
    size_t begin = 0, which = 0;
    for (;;) {
      size_t mark = FindMark(text, begin, only_fields, &which);
      if (mark == std::string_view::npos) break;
      AddText(text.substr(begin, mark - begin), turn);
      EVENKEEL_RETURN_IF_ERROR(AddMarked(which, where, turn));
      begin = mark + kMedia[which].mark.size();
    }
    AddText(text.substr(begin), turn);
    return absl::OkStatus();
  }

  absl::Status ReadLlavaTurn(const JsonValue& value, const std::string& where) {
    EVENKEEL_ASSIGN_OR_RETURN(Role role, ReadRole(value, "from", where));
    const JsonValue* text = value.Find("value");
    if (text == nullptr || !text->is_string()) return Wrong(where, "no text 'value'");
    Turn turn{role, {}};
    EVENKEEL_RETURN_IF_ERROR(AddMarkedText(text->text, /*only_fields=*/false, where, turn));
    out_.conversation.turns.push_back(std::move(turn));
    return absl::OkStatus();
  }

  absl::Status ReadMessage(const JsonValue& value, const std::string& where) {
    EVENKEEL_ASSIGN_OR_RETURN(Role role, ReadRole(value, "role", where));
    const JsonValue* content = value.Find("content");
    if (content == nullptr) return Wrong(where, "no 'content'");
    Turn turn{role, {}};
    if (content->is_string()) {
      // Without fields beside the messages, "<image>" in a string is just text.
      EVENKEEL_RETURN_IF_ERROR(AddMarkedText(content->text, /*only_fields=*/true, where, turn));
    } else if (content->is_array()) {
      for (size_t i = 0; i < content->values.size(); ++i) {
        EVENKEEL_RETURN_IF_ERROR(
            ReadPart(content->values[i], absl::StrCat(where, ".content[", i, "]"), turn));
      }
    } else {
      return Wrong(where, "'content' is neither a text nor a list of parts");
    }
    out_.conversation.turns.push_back(std::move(turn));
    return absl::OkStatus();
  }

  absl::Status ReadPart(const JsonValue& part, const std::string& where, Turn& turn) {
    const JsonValue* type = part.Find("type");
    if (type == nullptr || !type->is_string()) return Wrong(where, "no 'type'");
    if (type->text == "text") {
      const JsonValue* text = part.Find("text");
      if (text == nullptr || !text->is_string()) return Wrong(where, "no 'text'");
      AddText(text->text, turn);
      return absl::OkStatus();
    }
    for (size_t i = 0; i < kMedia.size(); ++i) {
      if (type->text != kMedia[i].name && type->text != kMedia[i].type_url) continue;
      std::optional<std::string> name = NameIn(part, kMedia[i]);
      if (name) {
        named_[i] = true;
        return AddMedium({kMedia[i].medium, std::move(name), false}, turn);
      }
      return AddMarked(i, where, turn);
    }
    return Wrong(where, absl::StrCat("unknown type '", Printable(type->text), "'"));
  }

  const Limits& limits_;
  std::array<Field, kMedia.size()> fields_;
  std::array<bool, kMedia.size()> named_{};  // parts with names of their own: the field only repeats them
  ParsedText out_;
};

}  // namespace

absl::StatusOr<ParsedText> ParseChat(std::string_view json, const Limits& limits) {
  if (json.size() > limits.max_text_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(json.size(), " bytes of text; limits.max_text_bytes is ", limits.max_text_bytes));
  }
  EVENKEEL_ASSIGN_OR_RETURN(JsonValue root, ParseJson(json, limits.max_json_depth));
  return ChatParser(limits).Parse(root);
}

}  // namespace evenkeel::dataset
