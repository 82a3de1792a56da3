// Compares Energon's classes of samples with the forms of a sample that docs/datasets.md describes.
#include "cli/energon_fields.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/yaml_file.h"
#include "core/conversation.h"
#include "core/job_syntax.h"
#include "core/status.h"
#include "core/utf8.h"

namespace evenkeel::cli {
namespace {

constexpr char kAdvice[] =
    "--as-tars writes a job for the members of the tars as Evenkeel reads them, whatever dataset.yaml has; "
    "or write the samples "
    "in one of its forms with a short script (docs/datasets.md)";

// A class of samples. `why`: what Evenkeel has no form for; empty: one form has its content.
struct SampleClass {
  std::string_view name;
  std::string_view media;  // the field with the medium; empty: none
  Medium medium;
  std::string_view text;    // the field with the text or the question
  std::string_view answer;  // empty: a text that is trained whole
  std::string_view why;
};
constexpr SampleClass kClasses[] = {
    {"CaptioningSample", "image", Medium::kImage, "caption", "", ""},
    {"OCRSample", "image", Medium::kImage, "text", "", ""},
    {"TextSample", "", Medium::kText, "text", "", ""},
    {"VQASample", "image", Medium::kImage, "context", "answers", ""},
    {"VidQASample", "video", Medium::kVideo, "context", "answers", ""},
    {"CrudeSample", "", Medium::kText, "", "",
     "its samples are made by a cooker, which is Python of the trainer"},
    {"ImageSample", "", Medium::kText, "", "", "it has no text to train on"},
    {"ImageClassificationSample", "", Medium::kText, "", "", "a label is not text to train on"},
    {"InterleavedSample", "", Medium::kText, "", "", "its sequence is put together in Python"},
    {"SimilarityInterleavedSample", "", Medium::kText, "", "",
     "which text belongs to an image is decided in Python"},
    {"MultiChoiceVQASample", "", Medium::kText, "", "",
     "choices and the number of the right one are not turns of a chat"},
    {"VQAOCRSample", "", Medium::kText, "", "", "a sample has one text or one chat, and this class has both"},
};

// Keys of dataset.yaml that change how Energon decodes, orders and labels, but no content.
const std::vector<std::string>& KnownKeys() {
  static const auto* const kKeys = new std::vector<std::string>{"__module__",
                                                                "__class__",
                                                                "sample_type",
                                                                "field_map",
                                                                "sample_loader",
                                                                "part_filter",
                                                                "subflavors",
                                                                "decoder",
                                                                "auto_decode",
                                                                "image_decode",
                                                                "av_decode",
                                                                "video_decode_audio",
                                                                "guess_content",
                                                                "subflavor",
                                                                "ignore_decoder_errors",
                                                                "shuffle_over_epochs",
                                                                "parallel_shard_iters",
                                                                "max_samples_per_sequence"};
  return *kKeys;
}

// "json[0][value]"; nullopt: something else.
std::optional<EnergonPart> PartOf(absl::string_view text) {
  EnergonPart part;
  const size_t bracket = text.find('[');
  part.suffix = absl::AsciiStrToLower(text.substr(0, bracket));
  if (part.suffix.empty() || part.suffix.find(']') != std::string::npos) return std::nullopt;
  if (bracket == absl::string_view::npos) return part;
  absl::string_view rest = text.substr(bracket);
  while (!rest.empty()) {
    const size_t end = rest.find(']');
    if (rest[0] != '[' || end == absl::string_view::npos || end == 1) return std::nullopt;
    part.path.emplace_back(rest.substr(1, end - 1));
    if (absl::StrContains(part.path.back(), "[")) return std::nullopt;
    rest.remove_prefix(end + 1);
  }
  return part;
}

class FieldsReader {
 public:
  explicit FieldsReader(YamlFile file) : file_(std::move(file)) {}

  absl::StatusOr<EnergonFields> Read() {
    const YamlNode& root = file_.root;
    if (root.kind != YamlNode::Kind::kMap) return file_.Error(root.line, "a map is expected");
    EVENKEEL_RETURN_IF_ERROR(ReadClass());
    EVENKEEL_RETURN_IF_ERROR(WithAdvice(file_.CheckMap(root, "the file", KnownKeys())));
    for (const char* python : {"sample_loader", "part_filter"}) {
      if (const YamlNode* node = Find(root, python); node != nullptr)
        return Refuse(node->line, absl::StrCat(python, ": ", out_.sample_class,
                                               " is put together in Python, which "
                                               "`evenkeel init` does not run"));
    }
    const YamlNode* map = Find(root, "field_map");
    if (map == nullptr || map->kind != YamlNode::Kind::kMap || map->keys.empty())
      return Refuse(root.line, "no field_map with the members of a sample");
    out_.where = absl::StrCat(file_.path, ":", map->line);
    for (size_t i = 0; i < map->keys.size(); ++i)
      EVENKEEL_RETURN_IF_ERROR(ReadField(map->keys[i], map->values[i], map->key_lines[i]));
    for (const auto& [field, parts] : {std::pair{class_->media, &out_.media},
                                       {class_->text, &out_.text},
                                       {class_->answer, &out_.answer}}) {
      if (!field.empty() && parts->empty())
        return Refuse(map->line, absl::StrCat("field_map: no '", std::string(field), "', which ",
                                              out_.sample_class, " has"));
    }
    EVENKEEL_RETURN_IF_ERROR(CheckForm(map->line));
    return std::move(out_);
  }

 private:
  absl::Status WithAdvice(const absl::Status& status) const {
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat(status.message(), "; ", kAdvice));
  }
  absl::Status Refuse(int line, absl::string_view why) const { return WithAdvice(file_.Error(line, why)); }

  // The class of the samples: of `sample_type`, or of a loader with the class in its name, as older files have it.
  absl::Status ReadClass() {
    const YamlNode* map = Find(file_.root, "sample_type");
    if (map == nullptr) map = &file_.root;
    if (map != &file_.root) {
      EVENKEEL_RETURN_IF_ERROR(file_.CheckMap(*map, "sample_type", {"__module__", "__class__"}));
    }
    const YamlNode* module = Find(*map, "__module__");
    const YamlNode* name = Find(*map, "__class__");
    if (module == nullptr || name == nullptr)
      return Refuse(map->line, "no sample_type with __module__ and __class__");
    EVENKEEL_ASSIGN_OR_RETURN(const std::string module_name, file_.Text(*module, "__module__"));
    EVENKEEL_ASSIGN_OR_RETURN(out_.sample_class, file_.Text(*name, "__class__"));
    constexpr absl::string_view kLoader = "Webdataset";
    if (map == &file_.root && absl::EndsWith(out_.sample_class, kLoader))
      out_.sample_class.replace(out_.sample_class.size() - kLoader.size(), kLoader.size(), "Sample");
    const bool is_energon =
        module_name == "megatron.energon" || absl::StartsWith(module_name, "megatron.energon.");
    for (const SampleClass& known : kClasses) {
      if (!is_energon || known.name != out_.sample_class) continue;
      class_ = &known;
      if (known.why.empty()) return absl::OkStatus();
      return Refuse(name->line, absl::StrCat("samples of ", out_.sample_class, ": ", std::string(known.why)));
    }
    return Refuse(name->line,
                  absl::StrCat("the class ", ShortText(out_.sample_class), " of ", ShortText(module_name),
                               " is Python, which `evenkeel init` does not run"));
  }

  absl::Status ReadField(const std::string& field, const YamlNode& value, int line) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::string text,
                              file_.Text(value, absl::StrCat("field_map: ", ShortText(field))));
    std::vector<EnergonPart>* parts = field == class_->media    ? &out_.media
                                      : field == class_->text   ? &out_.text
                                      : field == class_->answer ? &out_.answer
                                                                : nullptr;
    if (parts == nullptr || field.empty())
      return Refuse(line, absl::StrCat("field_map: Evenkeel's samples have no '", ShortText(field), "' of ",
                                       out_.sample_class));
    for (absl::string_view option : absl::StrSplit(text, ',')) {
      std::optional<EnergonPart> part = PartOf(option);
      if (!part.has_value())
        return Refuse(
            line, absl::StrCat("field_map: '", ShortText(text), "' is not like jpg, or like json[0][value]"));
      parts->push_back(*std::move(part));
    }
    absl::StrAppend(&out_.field_map, out_.field_map.empty() ? "" : ", ", field, ": ", text);
    return absl::OkStatus();
  }

  // Whether a form of a sample can have the fields.
  absl::Status CheckForm(int line) {
    out_.medium = class_->medium;
    out_.has_turns = !class_->answer.empty();
    for (const EnergonPart& part : out_.media) {
      if (part.path.empty() && dataset::KindOf(part.suffix) == dataset::MemberKind::kMedia &&
          dataset::MediumOf(part.suffix) == out_.medium)
        continue;
      return Refuse(line, absl::StrCat("field_map: '", ShortText(part.suffix), "' is not a suffix of ",
                                       std::string(MediumName(out_.medium)), " items"));
    }
    if (!out_.has_turns) {
      for (const EnergonPart& part : out_.text) {
        if (part.path.empty() && dataset::KindOf(part.suffix) == dataset::MemberKind::kText) continue;
        return Refuse(line, absl::StrCat("field_map: ", std::string(class_->text),
                                         ": a text in a tar is a member such as txt, and ",
                                         "JSON is read as a chat alone"));
      }
      return absl::OkStatus();
    }
    if (out_.text.size() == 1 && out_.answer.size() == 1 && IsTurn(out_.text[0], "0") &&
        IsTurn(out_.answer[0], "1") && out_.text[0].suffix == out_.answer[0].suffix &&
        out_.text[0].path.back() == out_.answer[0].path.back() &&
        std::equal(out_.text[0].path.begin(), out_.text[0].path.end() - 2, out_.answer[0].path.begin(),
                   out_.answer[0].path.end() - 2))
      return absl::OkStatus();
    return Refuse(
        line,
        absl::StrCat("field_map: ", std::string(class_->text), " and ", std::string(class_->answer),
                     ": of questions, Evenkeel reads the two turns of a chat, as json[0][value] and "
                     "json[1][value], or json[conversations][0][value] and json[conversations][1][value]"));
  }

  // json[0][value], json[conversations][0][value], json[messages][0][content].
  static bool IsTurn(const EnergonPart& part, std::string_view number) {
    const std::vector<std::string>& path = part.path;
    if (dataset::KindOf(part.suffix) != dataset::MemberKind::kJson || path.size() < 2 || path.size() > 3)
      return false;
    if (path.size() == 3 && path[0] != "conversations" && path[0] != "messages") return false;
    return path[path.size() - 2] == number && (path.back() == "value" || path.back() == "content");
  }

  const YamlFile file_;
  const SampleClass* class_ = nullptr;
  EnergonFields out_;
};

// The suffix of the first of `parts` that the sample has.
std::optional<std::string_view> FirstOf(const std::vector<EnergonPart>& parts,
                                        const std::vector<dataset::SampleMember>& members) {
  for (const EnergonPart& part : parts)
    for (const dataset::SampleMember& member : members)
      if (member.suffix == part.suffix) return member.suffix;
  return std::nullopt;
}

// Whether the JSON has the two turns of the field map, and nothing else that a chat would have.
absl::Status CheckTurns(const EnergonFields& fields, const ReadSample& sample) {
  const std::vector<std::string>& path = fields.text[0].path;
  const dataset::JsonValue* turns = sample.json;
  if (path.size() == 3) turns = turns != nullptr && turns->is_object() ? turns->Find(path[0]) : nullptr;
  const char* const other = path[0] == "messages" ? "conversations" : "messages";
  if (turns == nullptr || !turns->is_array() || (path.size() == 3 && sample.json->Find(other) != nullptr))
    return absl::FailedPreconditionError("its JSON has its turns in another place");
  for (const dataset::JsonValue& turn : turns->values()) {
    const dataset::JsonValue* text = turn.is_object() ? turn.Find(path.back()) : nullptr;
    if (text == nullptr || !text->is_string())
      return absl::FailedPreconditionError(
          absl::StrCat("a turn of its JSON has no text '", path.back(), "'"));
  }
  const std::vector<Turn>& read = sample.chat->conversation.turns;
  if (read.size() != 2 || read[0].role != Role::kUser || read[1].role != Role::kAssistant)
    return absl::FailedPreconditionError(
        absl::StrCat("its chat has ", read.size(), " turns, where a question and an answer are expected"));
  if (!sample.chat->conversation.tools.empty()) return absl::FailedPreconditionError("its chat has tools");
  return absl::OkStatus();
}

absl::Status Compare(const EnergonFields& fields, const ReadSample& sample) {
  if (fields.has_turns != (sample.chat != nullptr))
    return absl::FailedPreconditionError(sample.chat != nullptr
                                             ? "it has JSON with a chat, which Evenkeel reads"
                                             : "it has no JSON with a chat");
  const std::optional<std::string_view> text = FirstOf(fields.text, sample.members);
  if (text != sample.text)
    return absl::FailedPreconditionError(
        absl::StrCat("Evenkeel reads its member '", Printable(sample.text, 40), "' as the text"));
  if (fields.has_turns) EVENKEEL_RETURN_IF_ERROR(CheckTurns(fields, sample));
  const std::optional<std::string_view> medium = FirstOf(fields.media, sample.members);
  std::vector<std::string> read;
  for (size_t item : sample.items) read.push_back(Printable(sample.members[item].suffix, 40));
  if (!fields.media.empty() && !medium) return absl::FailedPreconditionError("it has no such medium");
  if (medium ? read == std::vector<std::string>{Printable(*medium, 40)} : read.empty())
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "Evenkeel reads ", read.empty() ? "no media" : absl::StrCat("the media ", absl::StrJoin(read, ", ")),
      fields.has_turns ? ", as the marks in its text have them" : ", all members that are media"));
}

}  // namespace

absl::StatusOr<EnergonFields> ReadEnergonFields(const std::string& path) {
  EVENKEEL_ASSIGN_OR_RETURN(YamlFile file, YamlFile::Read(path));
  return FieldsReader(std::move(file)).Read();
}

absl::Status CheckSameContent(const EnergonFields& fields, const ReadSample& sample) {
  const absl::Status same = Compare(fields, sample);
  if (same.ok()) return same;
  return absl::FailedPreconditionError(absl::StrCat("not what Energon reads by ", fields.where, " (",
                                                    fields.sample_class, ", ", fields.field_map,
                                                    "): ", same.message(), "; ", kAdvice));
}

}  // namespace evenkeel::cli
