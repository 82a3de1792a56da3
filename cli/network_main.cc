// `evenkeel-network`: the commands that talk to other machines. `evenkeel serve` and `evenkeel fetch` become it.
#include "cli/command_line.h"
#include "cli/commands.h"
#include "transport/ucx_library.h"

// What CLI11 throws before it parses is a mistake in a declaration; it may end the program.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  evenkeel::transport::LogUcxToStandardError();
  return evenkeel::cli::RunCommandLine(argc, argv,
                                       {evenkeel::cli::AddServeCommand, evenkeel::cli::AddFetchCommand});
}
