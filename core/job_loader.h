// YAML -> JobFile: field by field, by name, through protobuf reflection, so that proto/job.proto is the only
// schema. What it is not: it knows nothing of what the fields mean; core/job_resolver.cc does. Internal to
// core. Thread safety: plain values; needs none.
#pragma once

#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"

namespace evenkeel {

// Where each value of a file stands: "phases[1].cost.linear" -> line.
class SourceLines {
 public:
  explicit SourceLines(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  void Record(const std::string& path, int line) { lines_.emplace(path, line); }
  // InvalidArgument "file:line: path: why". Where `path` was not given, the line of the closest thing around
  // it.
  absl::Status Error(const std::string& path, absl::string_view why) const;

 private:
  int LineOf(std::string path) const;

  std::string file_;
  std::unordered_map<std::string, int> lines_;  // looked up only, never iterated
};

struct LoadedJobFile {
  pb::JobFile message;
  SourceLines lines;
};

absl::StatusOr<LoadedJobFile> LoadJobFile(const std::string& yaml, const std::string& file);

}  // namespace evenkeel
