// Reads a YAML file and checks the kinds of its values.
#include "cli/yaml_file.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/job_syntax.h"
#include "core/read_file.h"
#include "core/status.h"

namespace evenkeel::cli {

absl::StatusOr<YamlFile> YamlFile::Read(const std::string& path) {
  absl::StatusOr<std::string> text = ReadAtMost(path, kMaxYamlBytes + 1);
  if (!text.ok()) return AddContext(text.status(), path);
  EVENKEEL_ASSIGN_OR_RETURN(YamlNode root, ParseYaml(*text, path));
  return YamlFile{path, std::move(root)};
}

absl::Status YamlFile::Error(int line, absl::string_view why) const {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": ", why));
}

absl::Status YamlFile::CheckMap(const YamlNode& node, absl::string_view what,
                                const std::vector<std::string>& known) const {
  if (node.kind != YamlNode::Kind::kMap) return Error(node.line, absl::StrCat(what, ": a map is expected"));
  for (size_t i = 0; i < node.keys.size(); ++i) {
    if (std::find(known.begin(), known.end(), node.keys[i]) != known.end()) continue;
    return Error(node.key_lines[i], absl::StrCat("unknown key '", ShortText(node.keys[i]), "' in ", what,
                                                 "; nearest is '", Nearest(node.keys[i], known), "'"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> YamlFile::Text(const YamlNode& node, absl::string_view what) const {
  if (node.kind != YamlNode::Kind::kScalar || node.scalar.empty())
    return Error(node.line, absl::StrCat(what, ": a text is expected"));
  return node.scalar;
}

absl::StatusOr<std::vector<std::string>> YamlFile::Texts(const YamlNode& node, absl::string_view what) const {
  if (node.kind != YamlNode::Kind::kList)
    return Error(node.line, absl::StrCat(what, ": a list of texts is expected"));
  std::vector<std::string> out;
  for (const YamlNode& value : node.values) {
    EVENKEEL_ASSIGN_OR_RETURN(std::string text, Text(value, what));
    out.push_back(std::move(text));
  }
  return out;
}

std::optional<double> NumberOf(const YamlNode& node) {
  double number = 0;
  if (node.kind != YamlNode::Kind::kScalar || node.quoted || !absl::SimpleAtod(node.scalar, &number) ||
      !std::isfinite(number)) {
    return std::nullopt;
  }
  return number;
}

const YamlNode* Find(const YamlNode& map, std::string_view key) {
  const auto at = std::find(map.keys.begin(), map.keys.end(), key);
  return at == map.keys.end() ? nullptr : &map.values[at - map.keys.begin()];
}

}  // namespace evenkeel::cli
