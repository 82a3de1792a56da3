// The options of commands that look at one stream of a job.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "core/job.h"

namespace evenkeel::cli {

struct JobArguments {
  std::string job;
  std::string split;
};

inline void AddJobOptions(CLI::App& command, JobArguments& arguments) {
  command.add_option("--job", arguments.job, "The job file")->required();
  command.add_option("--split", arguments.split, "Of the job's splits the one to draw (default: the job's)");
}

// Errors of LoadJob.
inline absl::StatusOr<Job> LoadJobOf(const JobArguments& arguments) {
  return LoadJob(arguments.job, arguments.split);
}

}  // namespace evenkeel::cli
