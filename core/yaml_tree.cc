// Parses YAML into a tree with line numbers. It uses the events of yaml-cpp instead of YAML::Node, which
// hides aliases and duplicate keys: both are errors here. No other file includes yaml-cpp.
#include "core/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <exception>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/job_syntax.h"
#include "core/utf8.h"

namespace evenkeel {
namespace {

// Ends the parse. ParseYaml catches the exception and returns its text and line as an error.
[[noreturn]] void Refuse(const YAML::Mark& mark, const std::string& why) {
  throw YAML::ParserException(mark, why);
}

// Builds the tree. `open_` holds the lists and maps around the current position, outermost first; a node is
// moved into its parent when it is complete.
class TreeBuilder : public YAML::EventHandler {
 public:
  YamlNode Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) Refuse(mark, "a second document; a job is one");
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    Refuse(mark, absl::StrCat("anchor '", ShortText(name), "': anchors and aliases are not supported"));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    Refuse(mark, "anchors and aliases are not supported");
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override {
    Place(mark, Start(mark, YamlNode::Kind::kNull));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    CheckTag(mark, tag);
    YamlNode node = Start(mark, YamlNode::Kind::kScalar);
    node.scalar = value;
    node.quoted = tag == "!";
    Place(mark, std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, YamlNode::Kind::kMap);
  }
  void OnMapEnd() override { Close(); }

 private:
  // yaml-cpp gives "?" or nothing to a value without a tag and "!" to a quoted one. All others are tags of
  // the file.
  static void CheckTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag != "?" && tag != "!" && !tag.empty()) Refuse(mark, "tags are not supported");
  }

  YamlNode Start(const YAML::Mark& mark, YamlNode::Kind kind) {
    if (++nodes_ > kMaxYamlNodes) Refuse(mark, absl::StrCat("more than ", kMaxYamlNodes, " values"));
    YamlNode node;
    node.kind = kind;
    node.line = mark.line + 1;
    return node;
  }

  // Whether the next value is a key: the innermost open node is a map with as many values as keys.
  bool ExpectsKey() const {
    return !open_.empty() && open_.back().kind == YamlNode::Kind::kMap &&
           open_.back().keys.size() == open_.back().values.size();
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YamlNode::Kind kind) {
    CheckTag(mark, tag);
    if (ExpectsKey()) Refuse(mark, "a key must be a text");
    if (open_.size() == kMaxYamlDepth) Refuse(mark, absl::StrCat("nested deeper than ", kMaxYamlDepth));
    open_.push_back(Start(mark, kind));
  }

  void Close() {
    YamlNode node = std::move(open_.back());
    open_.pop_back();
    Attach(std::move(node));
  }

  // Adds a complete scalar: as the next key of the open map, or as a value.
  void Place(const YAML::Mark& mark, YamlNode node) {
    if (!ExpectsKey()) return Attach(std::move(node));
    if (node.kind != YamlNode::Kind::kScalar) Refuse(mark, "a key must be a text");
    YamlNode& map = open_.back();
    auto known = std::find(map.keys.begin(), map.keys.end(), node.scalar);
    if (known != map.keys.end()) {
      int line = map.key_lines[known - map.keys.begin()];
      Refuse(mark, absl::StrCat("key '", ShortText(node.scalar), "' was already given on line ", line));
    }
    // Searching a map's keys is quadratic; no message of a job has a hundred fields.
    if (map.keys.size() == 100) Refuse(mark, "more than 100 keys");
    map.keys.push_back(std::move(node.scalar));
    map.key_lines.push_back(node.line);
  }

  // Adds a complete node as a value of the innermost open node, or as the root.
  void Attach(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
    } else {
      YamlNode& parent = open_.back();
      // A missing value is found only at the next token, lines below its key.
      if (parent.kind == YamlNode::Kind::kMap && node.kind == YamlNode::Kind::kNull) {
        node.line = parent.key_lines.back();
      }
      parent.values.push_back(std::move(node));
    }
  }

  YamlNode root_;
  std::vector<YamlNode> open_;
  size_t nodes_ = 0;
  int documents_ = 0;
};

absl::Status ErrorAt(const std::string& file, int line, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(file, ":", line, ": ", why));
}

// Fails on invalid UTF-8 and NUL before yaml-cpp sees them, so that the error has the position of the byte.
absl::Status CheckText(const std::string& text, const std::string& file) {
  if (text.size() > kMaxYamlBytes) {
    return ErrorAt(file, 1, absl::StrCat(text.size(), " bytes; at most ", kMaxYamlBytes, " are read"));
  }
  const size_t bad = std::min(ValidUtf8Prefix(text), text.find('\0'));
  if (bad < text.size()) {
    int line = 1 + static_cast<int>(std::count(text.begin(), text.begin() + bad, '\n'));
    return ErrorAt(file, line, absl::StrCat("byte ", bad, " of the file is a NUL or not UTF-8"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<YamlNode> ParseYaml(const std::string& text, const std::string& file) {
  if (absl::Status status = CheckText(text, file); !status.ok()) return status;
  TreeBuilder builder;
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    if (!parser.HandleNextDocument(builder)) return ErrorAt(file, 1, "the file is empty");
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    return ErrorAt(file, std::max(0, error.mark.line) + 1, error.msg);
  } catch (const std::exception& error) {
    return ErrorAt(file, 1, absl::StrCat("not readable as YAML: ", error.what()));
  }
  return builder.Take();
}

}  // namespace evenkeel
