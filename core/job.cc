#include "core/job.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/job_loader.h"
#include "core/job_resolver.h"
#include "core/read_file.h"
#include "core/status.h"
#include "core/yaml_tree.h"

namespace evenkeel {

const PhaseSpec* Job::phase(Phase phase) const {
  for (const PhaseSpec& candidate : phases) {
    if (candidate.phase == phase) return &candidate;
  }
  return nullptr;
}

std::string AlgorithmNames() {
  return absl::StrJoin(kAlgorithms, ", ",
                       [](std::string* out, const AlgorithmName& algorithm) { out->append(algorithm.name); });
}

bool KeepsCountsEqual(std::string_view algorithm) {
  for (const AlgorithmName& known : kAlgorithms) {
    if (known.name == algorithm) return known.keeps_counts_equal;
  }
  return false;
}

absl::StatusOr<Job> ParseJob(const std::string& yaml, const std::string& path) {
  EVENKEEL_ASSIGN_OR_RETURN(LoadedJobFile file, LoadJobFile(yaml, path));
  return ResolveJob(file);
}

absl::StatusOr<Job> LoadJob(const std::string& path) {
  // One byte more than is allowed: the parser then names the limit.
  const absl::StatusOr<std::string> text = ReadAtMost(path, kMaxYamlBytes + 1);
  if (!text.ok()) {
    return absl::NotFoundError(absl::StrCat(path, ":1: cannot read the job file: ", text.status().message()));
  }
  return ParseJob(*text, path);
}

}  // namespace evenkeel
