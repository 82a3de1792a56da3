#include "cli/isolation.h"

#include "core/status.h"
#include "server/isolated_processor.h"

namespace evenkeel::cli {

void AddIsolationOptions(CLI::App& command, IsolationArguments& arguments) {
  command
      .add_option(
          "--isolation", arguments.isolation,
          "Media that confined processes decode: ffmpeg (audio and video), all, off (default: the job's)")
      ->check(CLI::IsMember({"ffmpeg", "all", "off"}));
  command
      .add_option("--decoder-memory", arguments.decoders.memory_bytes,
                  "What one of these processes may allocate")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("2GiB");
}

absl::StatusOr<std::unique_ptr<DecoderPool>> StartDecoders(const IsolationArguments& arguments, Job& job) {
  if (arguments.isolation == "off") job.isolation = Isolation::kOff;
  if (arguments.isolation == "ffmpeg") job.isolation = Isolation::kFfmpeg;
  if (arguments.isolation == "all") job.isolation = Isolation::kAll;
  absl::StatusOr<std::unique_ptr<DecoderPool>> decoders = evenkeel::StartDecoders(job, arguments.decoders);
  if (decoders.ok() || absl::IsInvalidArgument(decoders.status())) return decoders;
  return AddContext(decoders.status(),
                    "decoder processes (--isolation off decodes in this process, without protection)");
}

}  // namespace evenkeel::cli
