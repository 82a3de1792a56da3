// The options for confined decoder processes: which media they decode, and how much memory each may use.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "core/job.h"
#include "isolation/decoder_pool.h"

namespace evenkeel::cli {

struct IsolationArguments {
  std::string isolation;  // empty: the job's
  isolation::DecoderPool::Options decoders;
};

// Logs what happens to the processes.
isolation::DecoderEvents& DecoderLogEvents();

void AddIsolationOptions(CLI::App& command, IsolationArguments& arguments);

// Overrides the job's isolation by the arguments and starts its decoders; null if isolation is off. Call it
// before the process has threads. Errors of evenkeel::StartDecoders.
absl::StatusOr<std::unique_ptr<isolation::DecoderPool>> StartDecoders(const IsolationArguments& arguments,
                                                                      Job& job);

}  // namespace evenkeel::cli
