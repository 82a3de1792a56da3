// Any text is either a job or an error that starts with "file:line: ".
#include <cstdlib>
#include <string>

#include "core/job.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  absl::StatusOr<evenkeel::Job> job = evenkeel::ParseJob(text, "f");
  if (!job.ok()) {
    if (job.status().message().substr(0, 2) != "f:") std::abort();
    return 0;
  }
  if (job->phase(evenkeel::Phase::kLlm) == nullptr || job->datasets.empty()) std::abort();
  evenkeel::LayoutDigest(*job);
  return 0;
}
