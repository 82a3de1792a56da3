// Adds the line of the job file to errors of later stages. A Job does not keep the lines of its keys, so the
// file is read again, only when there is an error.
#include "core/job_where.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/job_loader.h"
#include "core/read_file.h"
#include "core/yaml_tree.h"

namespace evenkeel {
namespace {

// The key whose folder `message` begins with; empty: none.
std::string KeyOf(const ProcessorSpec& spec, std::string_view message) {
  std::vector<std::pair<std::string, std::string>> folders;
  for (const EncoderSpec& encoder : spec.Encoders()) folders.emplace_back(encoder.key, encoder.folder);
  folders.emplace_back("processor.tokenizer", spec.tokenizer);
  for (const auto& [key, folder] : folders) {
    if (!folder.empty() && message.substr(0, folder.size()) == folder && message.size() > folder.size() &&
        (message[folder.size()] == ':' || message[folder.size()] == '/')) {
      return key;
    }
  }
  return "";
}

// The key of the phase that `message` begins with; empty: none.
std::string PhaseKeyOf(const pb::JobFile& file, std::string_view message) {
  for (int i = 0; i < file.phases_size(); ++i) {
    const std::string begin = absl::StrCat("phase ", file.phases(i).name(), ":");
    if (message.substr(0, begin.size()) == begin) return absl::StrCat("phases[", i, "]");
  }
  return "";
}

// The key of `processor` that `message` begins with; empty: none.
std::string WordKeyOf(std::string_view message) {
  constexpr std::string_view kProcessor = "processor.";
  if (message.substr(0, kProcessor.size()) != kProcessor) return "";
  const size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", kProcessor.size());
  if (end == std::string_view::npos || message.substr(end, 2) != ": ") return "";
  return std::string(message.substr(0, end));
}

}  // namespace

absl::Status NameInJob(const Job& job, const absl::Status& status) {
  std::string message(status.message());
  std::string key = KeyOf(job.processor, message);
  if (key.empty()) {
    key = WordKeyOf(message);
    if (!key.empty()) message.erase(0, key.size() + 2);
  }
  if (key.empty() && message.rfind("phase ", 0) != 0) return status;
  const absl::StatusOr<std::string> yaml = ReadAtMost(job.path, kMaxYamlBytes + 1);
  if (!yaml.ok()) return status;
  const absl::StatusOr<LoadedJobFile> loaded = LoadJobFile(*yaml, job.path);
  if (!loaded.ok()) return status;
  if (key.empty()) key = PhaseKeyOf(loaded->message, message);
  if (key.empty()) return status;
  return absl::Status(status.code(), loaded->lines.Error(key, message).message());
}

}  // namespace evenkeel
