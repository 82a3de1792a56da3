// Reads a job's YAML into its protobuf message by reflection, so that proto/job.proto is the only list of
// keys. Every error names the file, the line and the key.
#include "core/job_loader.h"

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/job_syntax.h"
#include "core/status.h"
#include "core/yaml_tree.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace evenkeel {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

std::string Found(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "keys and values";
    case YamlNode::Kind::kScalar:
      break;
  }
  return absl::StrCat(node.quoted ? "the text " : "", "'", ShortText(node.scalar), "'");
}

std::string Join(const std::string& path, const std::string& key) {
  return path.empty() ? key : absl::StrCat(path, ".", key);
}

// Fills one message from one map. Errors name the file, the line and the path of the key.
class Filler {
 public:
  explicit Filler(SourceLines* lines) : lines_(lines) {}

  absl::Status Fill(const YamlNode& node, const std::string& path, Message* message) {
    if (node.kind == YamlNode::Kind::kNull) return absl::OkStatus();
    if (node.kind != YamlNode::Kind::kMap) {
      return At(node.line, path, absl::StrCat("expected keys and values, found ", Found(node)));
    }
    for (size_t i = 0; i < node.keys.size(); ++i) {
      EVENKEEL_ASSIGN_OR_RETURN(const FieldDescriptor* field,
                                FindField(*message, node.keys[i], node.key_lines[i], path));
      std::string field_path = Join(path, node.keys[i]);
      lines_->Record(field_path, node.key_lines[i]);
      EVENKEEL_RETURN_IF_ERROR(FillField(node.values[i], field_path, *field, message));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status At(int line, const std::string& path, absl::string_view why) const {
    return absl::InvalidArgumentError(
        absl::StrCat(lines_->file(), ":", line, ": ", path, path.empty() ? "" : ": ", why));
  }

  // Finds a key among the fields of the message; an unknown one gives an error with the nearest known key.
  absl::StatusOr<const FieldDescriptor*> FindField(const Message& message, const std::string& key, int line,
                                                   const std::string& path) const {
    const Descriptor& descriptor = *message.GetDescriptor();
    if (const FieldDescriptor* field = descriptor.FindFieldByName(key))
      return OneOf(message, field, line, path);
    std::vector<std::string> known;
    known.reserve(descriptor.field_count());
    for (int i = 0; i < descriptor.field_count(); ++i) known.push_back(descriptor.field(i)->name());
    return At(line, "",
              absl::StrCat("unknown key '", ShortText(key), "' in ", path.empty() ? "job" : path,
                           "; nearest is '", Nearest(key, known), "'"));
  }

  // Fails if another field of the same oneof has been given.
  absl::StatusOr<const FieldDescriptor*> OneOf(const Message& message, const FieldDescriptor* field, int line,
                                               const std::string& path) const {
    const auto* oneof = field->real_containing_oneof();
    if (oneof != nullptr && message.GetReflection()->HasOneof(message, oneof)) {
      const FieldDescriptor* other = message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
      return At(line, path,
                absl::StrCat("'", other->name(), "' and '", field->name(), "' exclude each other"));
    }
    return field;
  }

  absl::Status FillField(const YamlNode& node, const std::string& path, const FieldDescriptor& field,
                         Message* message) {
    if (!field.is_repeated()) return FillOne(node, path, field, message);
    if (node.kind == YamlNode::Kind::kNull) return absl::OkStatus();
    if (node.kind != YamlNode::Kind::kList) {
      return At(node.line, path, absl::StrCat("expected a list, found ", Found(node)));
    }
    for (size_t i = 0; i < node.values.size(); ++i) {
      std::string element = absl::StrCat(path, "[", i, "]");
      lines_->Record(element, node.values[i].line);
      EVENKEEL_RETURN_IF_ERROR(FillOne(node.values[i], element, field, message));
    }
    return absl::OkStatus();
  }

  // One value: the field itself, or one more element of a repeated field.
  absl::Status FillOne(const YamlNode& node, const std::string& path, const FieldDescriptor& field,
                       Message* message) {
    const auto& reflection = *message->GetReflection();
    bool repeated = field.is_repeated();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(
            node, path,
            repeated ? reflection.AddMessage(message, &field) : reflection.MutableMessage(message, &field));
      case FieldDescriptor::CPPTYPE_STRING: {
        EVENKEEL_ASSIGN_OR_RETURN(std::string text, Text(node, path));
        repeated ? reflection.AddString(message, &field, std::move(text))
                 : reflection.SetString(message, &field, std::move(text));
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_UINT64: {
        EVENKEEL_ASSIGN_OR_RETURN(uint64_t value, Whole(node, path, field));
        repeated ? reflection.AddUInt64(message, &field, value)
                 : reflection.SetUInt64(message, &field, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_UINT32: {
        EVENKEEL_ASSIGN_OR_RETURN(uint64_t value, Whole(node, path, field));
        if (value > std::numeric_limits<uint32_t>::max()) {
          return At(node.line, path, absl::StrCat(value, " is too large; at most 4294967295"));
        }
        uint32_t narrow = static_cast<uint32_t>(value);
        repeated ? reflection.AddUInt32(message, &field, narrow)
                 : reflection.SetUInt32(message, &field, narrow);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        EVENKEEL_ASSIGN_OR_RETURN(double value, Number(node, path));
        repeated ? reflection.AddDouble(message, &field, value)
                 : reflection.SetDouble(message, &field, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_BOOL: {
        EVENKEEL_ASSIGN_OR_RETURN(bool value, TrueOrFalse(node, path));
        repeated ? reflection.AddBool(message, &field, value) : reflection.SetBool(message, &field, value);
        return absl::OkStatus();
      }
      default:
        return At(node.line, path,
                  absl::StrCat("a field of type ", field.cpp_type_name(), " is not supported"));
    }
  }

  absl::StatusOr<std::string> Text(const YamlNode& node, const std::string& path) const {
    if (node.kind != YamlNode::Kind::kScalar) {
      return At(node.line, path, absl::StrCat("expected a text, found ", Found(node)));
    }
    if (node.scalar.find('\0') != std::string::npos)
      return At(node.line, path, "a text must not contain NUL");
    return node.scalar;
  }

  bool IsPlain(const YamlNode& node) const { return node.kind == YamlNode::Kind::kScalar && !node.quoted; }

  absl::StatusOr<uint64_t> Whole(const YamlNode& node, const std::string& path,
                                 const FieldDescriptor& field) const {
    if (!IsPlain(node))
      return At(node.line, path, absl::StrCat("expected a whole number, found ", Found(node)));
    bool is_size = absl::EndsWith(field.name(), "_bytes") || absl::EndsWith(field.name(), "_pixels");
    absl::StatusOr<uint64_t> value = ParseWholeNumber(node.scalar, is_size);
    if (!value.ok()) return At(node.line, path, value.status().message());
    return *value;
  }

  absl::StatusOr<double> Number(const YamlNode& node, const std::string& path) const {
    double value = 0;
    if (!IsPlain(node) || !absl::SimpleAtod(node.scalar, &value) || !std::isfinite(value)) {
      return At(node.line, path, absl::StrCat("expected a finite number, found ", Found(node)));
    }
    return value + 0.0;  // no negative zero
  }

  absl::StatusOr<bool> TrueOrFalse(const YamlNode& node, const std::string& path) const {
    if (IsPlain(node) && node.scalar == "true") return true;
    if (IsPlain(node) && node.scalar == "false") return false;
    return At(node.line, path, absl::StrCat("expected true or false, found ", Found(node)));
  }

  SourceLines* lines_;
};

}  // namespace

// Removes parts of the path until one has a line: a missing key is reported at the map that should have it.
int SourceLines::LineOf(std::string path) const {
  while (true) {
    auto found = lines_.find(path);
    if (found != lines_.end()) return found->second;
    size_t cut = path.find_last_of(".[");
    if (cut == std::string::npos) return 1;
    path.resize(cut);
  }
}

absl::Status SourceLines::Error(const std::string& path, absl::string_view why) const {
  return absl::InvalidArgumentError(absl::StrCat(file_, ":", LineOf(path), ": ", path, ": ", why));
}

absl::StatusOr<LoadedJobFile> LoadJobFile(const std::string& yaml, const std::string& file) {
  EVENKEEL_ASSIGN_OR_RETURN(YamlNode root, ParseYaml(yaml, file));
  LoadedJobFile loaded{{}, SourceLines(file)};
  if (root.kind == YamlNode::Kind::kNull) {
    return absl::InvalidArgumentError(absl::StrCat(file, ":1: the file is empty"));
  }
  EVENKEEL_RETURN_IF_ERROR(Filler(&loaded.lines).Fill(root, "", &loaded.message));
  return loaded;
}

}  // namespace evenkeel
