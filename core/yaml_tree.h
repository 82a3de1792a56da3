// YAML text -> a small tree with line numbers, for configuration files.
//
// What it is not: all of YAML. One document; no anchors, aliases, tags or merge keys; keys are plain texts
// and given once; size, depth and number of nodes are bounded, so that a hostile file is refused before it
// takes memory. Thread safety: plain values; needs none.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace evenkeel {

inline constexpr size_t kMaxYamlBytes = 1 << 20;
inline constexpr size_t kMaxYamlNodes = 200000;
inline constexpr int kMaxYamlDepth = 32;

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };

  Kind kind = Kind::kNull;
  int line = 1;
  std::string scalar;
  bool quoted = false;            // scalars: written in quotes or as a block, so never a number
  std::vector<YamlNode> values;   // lists and maps
  std::vector<std::string> keys;  // maps: parallel to `values`
  std::vector<int> key_lines;     // maps: parallel to `values`
};

// InvalidArgument "file:line: ..." where `text` is not such a document. `file` is for messages only.
absl::StatusOr<YamlNode> ParseYaml(const std::string& text, const std::string& file);

}  // namespace evenkeel
