// The options of commands that decode media: whether confined processes do it, and what each may take.
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

void AddIsolationOptions(CLI::App& command, IsolationArguments& arguments);

// Overrides the job's isolation where the arguments do, and starts its decoders; null where it is off. To be
// called before the process has threads. Errors as evenkeel::StartDecoders.
absl::StatusOr<std::unique_ptr<isolation::DecoderPool>> StartDecoders(const IsolationArguments& arguments,
                                                                      Job& job);

}  // namespace evenkeel::cli
