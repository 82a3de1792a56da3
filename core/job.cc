#include "core/job.h"

#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/job_loader.h"
#include "core/job_resolver.h"
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
  std::ifstream in(path, std::ios::binary);
  // Read at most one byte more than is allowed: the parser then names the limit. A folder opens but does not
  // read.
  std::string text(kMaxYamlBytes + 1, '\0');
  if (!in || (!in.read(text.data(), text.size()) && in.bad()) || (in.gcount() == 0 && !in.eof())) {
    return absl::NotFoundError(
        absl::StrCat(path, ":1: cannot read the job file: ", std::generic_category().message(errno)));
  }
  text.resize(in.gcount());
  return ParseJob(text, path);
}

}  // namespace evenkeel
