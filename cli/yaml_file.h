// A small YAML file of somebody else's, whose errors name the file and the line.
//
// Thread safety: a plain value.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/yaml_tree.h"

namespace evenkeel::cli {

struct YamlFile {
  std::string path;
  YamlNode root;

  // NotFound: no such file. InvalidArgument: not YAML as core/yaml_tree.h reads it. The message has the path, and the line.
  static absl::StatusOr<YamlFile> Read(const std::string& path);

  // InvalidArgument "path:line: why".
  absl::Status Error(int line, absl::string_view why) const;
  // An error if `node` is not a map, or has a key that is not one of `known`. `what` names the node.
  absl::Status CheckMap(const YamlNode& node, absl::string_view what,
                        const std::vector<std::string>& known) const;
  // The text of a scalar; an error that names `what` for anything else.
  absl::StatusOr<std::string> Text(const YamlNode& node, absl::string_view what) const;
  absl::StatusOr<std::vector<std::string>> Texts(const YamlNode& node, absl::string_view what) const;
};

// The finite number of a scalar without quotes; nullopt: it is something else.
std::optional<double> NumberOf(const YamlNode& node);

// The value of a key of a map; null: it has no such key.
const YamlNode* Find(const YamlNode& map, std::string_view key);

}  // namespace evenkeel::cli
