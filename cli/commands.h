// The subcommands of `evenkeel`. Each adds itself to the application and, if chosen, sets its exit code. They
// only translate arguments.
#pragma once

#include <CLI/CLI.hpp>

#include "absl/status/status.h"

namespace evenkeel::cli {

// Exit codes, documented in docs/cli.md.
enum ExitCode : int {
  kOk = 0,
  kFailure = 1,      // the work failed
  kUsage = 2,        // bad arguments, bad job file
  kMismatch = 3,     // digests, versions or index do not match
  kUnavailable = 4,  // no worker answered, or a deadline passed
  kBadData = 5,      // items or samples that no worker can deliver
  kNoIndex = 6,      // the index lacks what `evenkeel index` makes
                     // 130, 143: interrupted (cli/interrupt.h)
};

// Prints "evenkeel: message" to stderr and returns the exit code that fits.
int Report(const absl::Status& status);

// Descriptions for the help of two programs: `evenkeel` lists these commands, another program runs them.
inline constexpr char kInitDescription[] = "Write a first job for a folder of shards and a checkpoint";
inline constexpr char kIndexDescription[] = "Make or update the index of a job's shards";
inline constexpr char kServeDescription[] = "Run a worker: serve the parts of a job to its consumers";
inline constexpr char kFetchDescription[] =
    "Consume a stream without Python and print digests of what arrived";
inline constexpr char kPlanDescription[] = "Show a step's plan with loads before and after; decodes nothing";
inline constexpr char kPreprocessDescription[] = "Make a model's tensors from media files, for comparison";
inline constexpr char kShowDescription[] =
    "Show samples of a step: media, tokens, labels, and where each goes";
inline constexpr char kSizeDescription[] =
    "Measure how many cores and workers a job needs on machines like this one";
inline constexpr char kSimulateDescription[] = "Compare policies by the modelled time of training steps";

void AddInitCommand(CLI::App& app, int* exit_code);
void AddIndexCommand(CLI::App& app, int* exit_code);
void AddServeCommand(CLI::App& app, int* exit_code);
void AddShowCommand(CLI::App& app, int* exit_code);
void AddFetchCommand(CLI::App& app, int* exit_code);
void AddPlanCommand(CLI::App& app, int* exit_code);
void AddPreprocessCommand(CLI::App& app, int* exit_code);
void AddSizeCommand(CLI::App& app, int* exit_code);
void AddSolveCommand(CLI::App& app, int* exit_code);
void AddSimulateCommand(CLI::App& app, int* exit_code);

}  // namespace evenkeel::cli
