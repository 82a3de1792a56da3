#include <clocale>
#include <iostream>
#include <string_view>

#include "cli/commands.h"
#include "core/cpu.h"
#include "core/same_arithmetic.h"
#include "transport/ucx_log.h"

namespace evenkeel::cli {

int Report(const absl::Status& status) {
  if (status.ok()) return kOk;
  std::cerr << "evenkeel: " << status.message() << "\n";
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
      return kUsage;
    case absl::StatusCode::kFailedPrecondition:
      return kMismatch;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return kUnavailable;
    case absl::StatusCode::kDataLoss:
      return kBadData;
    default:
      return kFailure;
  }
}

}  // namespace evenkeel::cli

namespace {

// The first argument, where it is neither an option nor a command; nothing otherwise.
std::string UnknownCommand(const CLI::App& app, int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word.empty() || word[0] == '-') return "";
  const auto is_it = [&](const CLI::App* command) { return command->get_name() == word; };
  return app.get_subcommands(is_it).empty() ? word : "";
}

}  // namespace

// What CLI11 throws before it parses is a mistake in a declaration; it may end the program.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  if (const absl::Status known = evenkeel::CheckCpuLevel(); !known.ok()) return evenkeel::cli::Report(known);
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "serve" || command == "index" || command == "preprocess") {  // those that decode media
    const absl::Status kept = evenkeel::KeepArithmeticTheSame(argv);
    if (!kept.ok()) return evenkeel::cli::Report(kept);
  }
  std::setlocale(LC_ALL, "C");
  evenkeel::transport::LogUcxToStandardError();
  CLI::App app("Evenkeel: data preprocessing for training multimodal models, as a service.", "evenkeel");
  app.set_version_flag("--version", EVENKEEL_VERSION);
  app.require_subcommand(1);
  int exit_code = evenkeel::cli::kOk;
  evenkeel::cli::AddIndexCommand(app, &exit_code);
  evenkeel::cli::AddServeCommand(app, &exit_code);
  evenkeel::cli::AddFetchCommand(app, &exit_code);
  evenkeel::cli::AddPlanCommand(app, &exit_code);
  evenkeel::cli::AddPreprocessCommand(app, &exit_code);
  evenkeel::cli::AddSolveCommand(app, &exit_code);
  evenkeel::cli::AddSimulateCommand(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const std::string word = UnknownCommand(app, argc, argv); !word.empty()) {
      std::cerr << "evenkeel: unknown command '" << word << "'; evenkeel --help lists the commands\n";
      return evenkeel::cli::kUsage;
    }
    int code = app.exit(error);
    return code == 0 ? 0 : evenkeel::cli::kUsage;
  }
  return exit_code;
}
