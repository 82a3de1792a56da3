// Parses the command line and runs the chosen command.
#include "cli/command_line.h"

#include <sys/prctl.h>

#include <algorithm>
#include <clocale>
#include <iostream>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "core/cpu.h"
#include "core/failure.h"
#include "core/job_syntax.h"
#include "core/no_index.h"
#include "core/same_arithmetic.h"

namespace evenkeel::cli {
namespace {

// The first argument, if it is neither an option nor a command; otherwise empty.
std::string UnknownCommand(const CLI::App& app, int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word.empty() || word[0] == '-') return "";
  const auto is_it = [&](const CLI::App* command) { return command->get_name() == word; };
  return app.get_subcommands(is_it).empty() ? word : "";
}

std::vector<std::string> NamesOf(const std::vector<const CLI::App*>& commands) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  return names;
}

// An error for the first word that is neither a command nor an option, with the nearest one; empty if all
// words are known. CLI11 checks required options first, so it would name the option that a typing error
// hides.
std::string UnknownWord(const CLI::App& app, int argc, char** argv) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  if (const std::string word = UnknownCommand(app, argc, argv); !word.empty()) {
    return absl::StrCat("unknown command '", word, "'; the nearest is '", Nearest(word, NamesOf(commands)),
                        "' (evenkeel --help lists the commands)");
  }
  for (const CLI::App* command : commands) {
    if (argc < 2 || command->get_name() != argv[1]) continue;
    std::vector<std::string> known;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back(absl::StrCat("--", name));
    }
    for (int i = 2; i < argc; ++i) {
      const std::string word = std::string(argv[i]).substr(0, std::string_view(argv[i]).find('='));
      if (word == "--") break;
      if (word.rfind("--", 0) != 0 || std::find(known.begin(), known.end(), word) != known.end()) continue;
      return absl::StrCat("evenkeel ", argv[1], " has no option ", ShortText(word), "; the nearest is ",
                          Nearest(word, known));
    }
  }
  return "";
}

bool DecodesMedia(std::string_view command) {
  return command == "serve" || command == "index" || command == "preprocess" || command == "show" ||
         command == "size";
}

}  // namespace

int Report(const absl::Status& status) {
  if (status.ok()) return kOk;
  std::cerr << "evenkeel: " << status.message() << "\n";
  if (IsNoIndex(status)) return kNoIndex;
  // Failures of this machine's storage or memory must not look like a worker that does not answer. A path
  // that is missing or a folder is the caller's mistake.
  const bool is_mistake = absl::IsNotFound(status) || absl::IsInvalidArgument(status);
  if (KnownKind(status) == FailureKind::kMachine && !is_mistake) return kFailure;
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
    case absl::StatusCode::kCancelled:
      return Interrupt::Happened() ? Interrupt::ExitCode() : kFailure;
    default:
      return kFailure;
  }
}

int RunCommandLine(int argc, char** argv, const std::vector<AddCommand>& commands) {
  if (const absl::Status known = CheckCpuLevel(); !known.ok()) return Report(known);
  if (argc > 1 && DecodesMedia(argv[1])) {
    if (const absl::Status kept = KeepArithmeticTheSame(argv); !kept.ok()) return Report(kept);
  }
  // After a re-exec through /proc/self/exe the process would be called "exe".
  prctl(PR_SET_NAME, "evenkeel");
  std::setlocale(LC_ALL, "C");
  CLI::App app("Evenkeel: data preprocessing for training multimodal models, as a service.", "evenkeel");
  app.set_version_flag("--version", EVENKEEL_VERSION);
  app.require_subcommand(1);
  int exit_code = kOk;
  for (const AddCommand add : commands) add(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked_for_help = error.get_exit_code() == 0;
    if (const std::string unknown = UnknownWord(app, argc, argv); !asked_for_help && !unknown.empty()) {
      std::cerr << "evenkeel: " << unknown << "\n";
      return kUsage;
    }
    return app.exit(error) == 0 ? kOk : kUsage;
  }
  return exit_code;
}

}  // namespace evenkeel::cli
