// Reads the job file a second time, on the way out with an error: the lines of keys are not kept with the
// job.
#include "core/job_where.h"

#include <string>
#include <string_view>
#include <utility>

#include "core/job_loader.h"
#include "core/read_file.h"
#include "core/yaml_tree.h"

namespace evenkeel {
namespace {

// The key whose folder `message` begins with; empty: none.
std::string KeyOf(const ProcessorSpec& spec, std::string_view message) {
  for (const auto& [key, folder] :
       {std::pair<const char*, const std::string&>{"processor.vision", spec.vision},
        {"processor.audio", spec.audio},
        {"processor.tokenizer", spec.tokenizer}}) {
    if (!folder.empty() && message.substr(0, folder.size()) == folder && message.size() > folder.size() &&
        (message[folder.size()] == ':' || message[folder.size()] == '/')) {
      return key;
    }
  }
  return "";
}

}  // namespace

absl::Status NameInJob(const Job& job, const absl::Status& status) {
  const std::string message(status.message());
  const std::string key = KeyOf(job.processor, message);
  if (key.empty()) return status;
  const absl::StatusOr<std::string> yaml = ReadAtMost(job.path, kMaxYamlBytes + 1);
  if (!yaml.ok()) return status;
  const absl::StatusOr<LoadedJobFile> loaded = LoadJobFile(*yaml, job.path);
  if (!loaded.ok()) return status;
  return absl::Status(status.code(), loaded->lines.Error(key, message).message());
}

}  // namespace evenkeel
