// `evenkeel`: the planner's command, and the way to all others. They are commands of `evenkeel-data` and
// `evenkeel-network`, which this program becomes, since it starts without the libraries that decode media.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cli/command_line.h"
#include "cli/commands.h"

namespace {

using namespace evenkeel::cli;

struct CommandElsewhere {
  const char* name;
  const char* description;
  std::string_view program;
};
constexpr std::string_view kData = "evenkeel-data", kNetwork = "evenkeel-network";
constexpr std::array<CommandElsewhere, 9> kElsewhere = {{{"init", kInitDescription, kData},
                                                         {"index", kIndexDescription, kData},
                                                         {"serve", kServeDescription, kNetwork},
                                                         {"fetch", kFetchDescription, kNetwork},
                                                         {"plan", kPlanDescription, kData},
                                                         {"preprocess", kPreprocessDescription, kData},
                                                         {"show", kShowDescription, kData},
                                                         {"size", kSizeDescription, kData},
                                                         {"simulate", kSimulateDescription, kData}}};

// The commands of the other programs, listed by --help.
void AddCommandsElsewhere(CLI::App& app, int*) {
  for (const CommandElsewhere& command : kElsewhere) app.add_subcommand(command.name, command.description);
}

// Executes a program of the folder of this one; returns only if that fails. The process, its number and its open files
// stay the same.
absl::Status Become(std::string_view name, char** argv) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::ErrnoToStatus(error.value(), "/proc/self/exe cannot be read");
  const auto program = self.parent_path() / name;
  execv(program.c_str(), argv);
  const std::string what = absl::StrCat(program.string(), " does not start (", std::strerror(errno),
                                        "); install it next to ", self.filename().string());
  return absl::FailedPreconditionError(what);
}

}  // namespace

// CLI11 throws before parsing only if an option is declared wrongly; such a mistake may end the program.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  const std::string_view word = argc > 1 ? argv[1] : "";
  const auto* command = std::ranges::find(kElsewhere, word, &CommandElsewhere::name);
  if (command != kElsewhere.end()) return Report(Become(command->program, argv));
  return RunCommandLine(argc, argv, {AddCommandsElsewhere, AddSolveCommand});
}
