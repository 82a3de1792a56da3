// `evenkeel-network`: the commands that talk to other machines. `evenkeel serve` and `evenkeel fetch` execute
// it.
#include "cli/command_line.h"
#include "cli/commands.h"
#include "transport/ucx_library.h"

// CLI11 throws before parsing only if an option is declared wrongly; such a mistake may end the program.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  evenkeel::transport::LogUcxToStandardError();
  return evenkeel::cli::RunCommandLine(argc, argv,
                                       {evenkeel::cli::AddServeCommand, evenkeel::cli::AddFetchCommand});
}
