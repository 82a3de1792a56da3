// The common part of `evenkeel` and `evenkeel-network`: from arguments to an exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <vector>

namespace evenkeel::cli {

// Adds one subcommand to the application; when chosen, it sets the exit code.
using AddCommand = void (*)(CLI::App& app, int* exit_code);

// Prepares the process (one arithmetic for commands that decode, the C locale, its name), parses the
// arguments and runs the chosen command. An unknown command or option is an error that names the nearest one.
// Call it first in main, before there are threads. Returns the program's exit code (cli/commands.h).
int RunCommandLine(int argc, char** argv, const std::vector<AddCommand>& commands);

}  // namespace evenkeel::cli
