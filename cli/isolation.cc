// Options for confined decoder processes, shared by the commands that decode.
#include "cli/isolation.h"

#include "isolation/isolated_processor.h"
#include "telemetry/event_log.h"

namespace evenkeel::cli {
namespace {

class DecoderLog final : public isolation::DecoderEvents {
 public:
  void OnDecoderReplaced(std::string_view reason, std::string_view ended) override {
    telemetry::LogEvent(telemetry::LogLevel::kWarning, "decoder_replaced",
                        {{"reason", reason}, {"ended", ended}});
  }
  void OnSpawnerReplaced(const absl::Status& why) override {
    telemetry::LogEvent(telemetry::LogLevel::kError, "spawner_replaced",
                        {{"message", std::string(why.message())}});
  }
};

}  // namespace

isolation::DecoderEvents& DecoderLogEvents() {
  static DecoderLog log;
  return log;
}

void AddIsolationOptions(CLI::App& command, IsolationArguments& arguments) {
  command
      .add_option(
          "--isolation", arguments.isolation,
          "Media decoded in confined processes: ffmpeg (audio and video), all, off (default: the job's)")
      ->check(CLI::IsMember({"ffmpeg", "all", "off"}));
  command
      .add_option("--decoder-memory", arguments.decoders.memory_bytes,
                  "Memory that one of these processes may allocate")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("2GiB");
}

absl::StatusOr<std::unique_ptr<isolation::DecoderPool>> StartDecoders(const IsolationArguments& arguments,
                                                                      Job& job) {
  if (arguments.isolation == "off") job.isolation = Isolation::kOff;
  if (arguments.isolation == "ffmpeg") job.isolation = Isolation::kFfmpeg;
  if (arguments.isolation == "all") job.isolation = Isolation::kAll;
  isolation::DecoderPool::Options options = arguments.decoders;
  options.events = &DecoderLogEvents();
  return evenkeel::isolation::StartDecoders(job, options);
}

}  // namespace evenkeel::cli
