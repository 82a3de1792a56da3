// Options for Python processes, shared by the commands that need a job's processor.
#include "cli/python.h"

#include <utility>

#include "cli/isolation.h"
#include "core/job_where.h"
#include "core/status.h"
#include "telemetry/event_log.h"

namespace evenkeel::cli {

void AddInterpreterOption(CLI::App& command, PythonArguments& arguments) {
  command.add_option("--python", arguments.pool.spawner.program.interpreter,
                     "Interpreter for processor.python (default: python of PATH, else python3)");
}

void AddPythonOptions(CLI::App& command, PythonArguments& arguments) {
  AddInterpreterOption(command, arguments);
  command
      .add_option("--python-memory", arguments.pool.spawner.memory_bytes,
                  "Memory that one Python process may allocate after its start")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("4GiB");
  command
      .add_option("--python-cpu", arguments.cpu_seconds,
                  "Seconds of CPU time that Python may use for one item")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
}

absl::StatusOr<std::shared_ptr<isolation::PythonPool>> StartPython(const PythonArguments& arguments,
                                                                   const Job& job,
                                                                   const isolation::DecoderPool* decoders) {
  if (job.processor.python.empty()) return std::shared_ptr<isolation::PythonPool>();
  isolation::PythonPool::Options options = arguments.pool;
  options.cpu = absl::Seconds(arguments.cpu_seconds);
  options.spawner.events = &DecoderLogEvents();
  if (decoders != nullptr) options.memory = decoders->memory();
  absl::StatusOr<std::shared_ptr<isolation::PythonPool>> pool =
      isolation::PythonPool::Start(job.processor, options);
  if (!pool.ok()) return NameInJob(job, pool.status());
  telemetry::LogEvent(telemetry::LogLevel::kInfo, "python",
                      {{"interpreter", (*pool)->interpreter()}, {"class", (*pool)->description().name}});
  return pool;
}

}  // namespace evenkeel::cli
