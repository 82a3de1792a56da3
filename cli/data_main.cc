// `evenkeel-data`: the commands that read data and need no network. `evenkeel` executes it.
#include "cli/command_line.h"
#include "cli/commands.h"

// CLI11 throws before parsing only if an option is declared wrongly; such a mistake may end the program.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  using namespace evenkeel::cli;
  return RunCommandLine(argc, argv,
                        {AddInitCommand, AddIndexCommand, AddPlanCommand, AddPreprocessCommand,
                         AddShowCommand, AddSizeCommand, AddSimulateCommand});
}
