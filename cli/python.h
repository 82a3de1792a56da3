// The options for Python processes, of a job with processor.python: the interpreter and its limits.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "isolation/decoder_pool.h"
#include "isolation/python_pool.h"

namespace evenkeel::cli {

struct PythonArguments {
  isolation::PythonPool::Options pool;
  double cpu_seconds = 60;
};

// The interpreter alone, for commands that produce no items.
void AddInterpreterOption(CLI::App& command, PythonArguments& arguments);
void AddPythonOptions(CLI::App& command, PythonArguments& arguments);

// Null if the job's processor is native. `decoders`: whose memory items and parts are in; may be null. Errors of
// PythonPool::Start.
absl::StatusOr<std::shared_ptr<isolation::PythonPool>> StartPython(
    const PythonArguments& arguments, const Job& job, const isolation::DecoderPool* decoders = nullptr);

}  // namespace evenkeel::cli
