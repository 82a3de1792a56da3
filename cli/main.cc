// `evenkeel`: the commands that work without a network; the others are passed on to `evenkeel-network`.
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

constexpr std::array<std::string_view, 2> kNetworkCommands = {"serve", "fetch"};

// The commands of `evenkeel-network`, listed by --help.
void AddNetworkCommands(CLI::App& app, int*) {
  app.add_subcommand("serve", evenkeel::cli::kServeDescription);
  app.add_subcommand("fetch", evenkeel::cli::kFetchDescription);
}

// Executes `evenkeel-network` from the folder of this program; returns only if that fails. It is a program of
// its own, so that making an index needs neither gRPC nor prometheus.
absl::Status BecomeNetworkProgram(char** argv) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::ErrnoToStatus(error.value(), "/proc/self/exe cannot be read");
  const auto program = self.parent_path() / "evenkeel-network";
  execv(program.c_str(), argv);
  const std::string what = absl::StrCat(program.string(), " does not start (", std::strerror(errno),
                                        "); install it next to ", self.filename().string());
  return absl::FailedPreconditionError(what);
}

}  // namespace

// CLI11 throws before parsing only if an option is declared wrongly; such a mistake may end the program.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  if (argc > 1 && std::ranges::find(kNetworkCommands, argv[1]) != kNetworkCommands.end()) {
    return evenkeel::cli::Report(BecomeNetworkProgram(argv));
  }
  using namespace evenkeel::cli;
  return RunCommandLine(
      argc, argv,
      {AddInitCommand, AddIndexCommand, AddNetworkCommands, AddPlanCommand, AddPreprocessCommand,
       AddShowCommand, AddSizeCommand, AddSolveCommand, AddSimulateCommand});
}
