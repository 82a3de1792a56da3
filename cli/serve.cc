// `evenkeel serve`: starts a worker, waits for a signal or a failure, and drains the worker.
#include <signal.h>

#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/isolation.h"
#include "cli/job_arguments.h"
#include "cli/python.h"
#include "cli/unpack_options.h"
#include "core/annotated_mutex.h"
#include "core/file_limit.h"
#include "core/job_where.h"
#include "core/kept_memory.h"
#include "core/status.h"
#include "dataset/format/table.h"
#include "preprocess/job_words.h"
#include "server/library_log.h"
#include "server/worker.h"
#include "telemetry/event_log.h"

namespace evenkeel::cli {
namespace {

constexpr absl::Duration kEnd = absl::Seconds(10);  // for stopping after the drain, or after a failure

struct ServeArguments {
  JobArguments job;
  IsolationArguments isolation;
  PythonArguments python;
  server::WorkerOptions options;
  dataset::FetchAheadOptions ahead;
  dataset::UnpackOptions unpack;
  std::string cache_folder;
  uint64_t cache_bytes = 100ull << 30;
  double drain_seconds = 25;
  double idle_seconds = 60;
  double send_seconds = 60;
  double self_test_seconds = 10;
  double fault_unit_delay_ms = 0;
  bool verbose = false;
};

// Blocks SIGTERM and SIGINT until a thread takes them. Threads and processes made later inherit the mask, so
// Ctrl-C does not end decoders whose work is to be finished.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // Without it a consumer that disconnects would end the worker.
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

// Takes the signals on a thread of its own. While the worker starts, the first signal ends the process. Once
// it serves, Wait returns the first signal, and the second one ends the process.
class Signals {
 public:
  explicit Signals(const sigset_t& signals) {
    std::thread([signals, state = state_] {
      for (;;) {
        int number = 0;
        sigwait(&signals, &number);
        MutexLock lock(state->mutex);
        if (!state->serving || state->taken != 0) {
          (void)telemetry::FlushLog(absl::Milliseconds(500));
          std::_Exit(kFailure);
        }
        state->taken = number;
        state->changed.NotifyAll();
      }
    }).detach();
  }

  void BeginServing() {
    MutexLock lock(state_->mutex);
    state_->serving = true;
  }
  // 0: ended by Fail, not by a signal.
  int Wait() {
    MutexLock lock(state_->mutex);
    while (state_->taken == 0 && state_->failure.ok()) state_->changed.Wait(state_->mutex);
    return state_->taken;
  }
  // Ends the wait like a signal, and ends the process if stopping takes longer than `patience`.
  void Fail(const absl::Status& status, absl::Duration patience) {
    {
      MutexLock lock(state_->mutex);
      state_->failure = status;
      state_->changed.NotifyAll();
    }
    EndWithin(patience);
  }
  // Ends the process if it still runs after `patience`. Not all that stopping waits for has a deadline of its
  // own: grpc::Server::Shutdown joins threads.
  static void EndWithin(absl::Duration patience) {
    std::thread([patience] {
      std::this_thread::sleep_for(absl::ToChronoNanoseconds(patience));
      telemetry::LogEvent(telemetry::LogLevel::kError, "stop_timeout",
                          {{"seconds", absl::ToDoubleSeconds(patience)}});
      (void)telemetry::FlushLog(absl::Milliseconds(500));
      std::_Exit(kFailure);
    }).detach();
  }
  absl::Status failure() const {
    MutexLock lock(state_->mutex);
    return state_->failure;
  }

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    absl::Status failure ABSL_GUARDED_BY(mutex);
    bool serving ABSL_GUARDED_BY(mutex) = false;
    int taken ABSL_GUARDED_BY(mutex) = 0;
  };
  // shared with the thread, which never ends
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

std::string AddressLine(const server::Worker& worker) {
  std::string line = R"({"address":)";
  telemetry::AppendJsonString(worker.address(), line);
  line += R"(,"metrics":)";
  telemetry::AppendJsonString(worker.metrics_address(), line);
  line += R"(,"probes":)";
  telemetry::AppendJsonString(worker.probes_address(), line);
  line += R"(,"transports":)";
  telemetry::AppendJsonString(worker.transports(), line);
  line += R"(,"stream_digest":)";
  telemetry::AppendJsonString(worker.stream().stream_digest.Hex(), line);
  line += R"(,"layout_digest":)";
  telemetry::AppendJsonString(worker.stream().layout_digest.Hex(), line);
  return line + "}";
}

// Data that a filter or a split keeps from training must be seen.
void LogLeftOut(const stream::Stream& stream) {
  for (uint32_t d = 0; d < stream.job.datasets.size(); ++d) {
    const dataset::LeftOut left_out = stream.index->left_out(d);
    if (left_out.by_where + left_out.by_split == 0) continue;
    telemetry::LogEvent(telemetry::LogLevel::kInfo, "samples_left_out",
                        {{"dataset", stream.job.datasets[d].name},
                         {"drawn", stream.index->num_samples(d)},
                         {"by_where", left_out.by_where},
                         {"by_split", left_out.by_split}});
  }
}

absl::Status Serve(const ServeArguments& arguments) {
  if (arguments.verbose) telemetry::SetLogLevel(telemetry::LogLevel::kDebug);
  KeepFreedMemory();
  RaiseFileLimit();  // before anything is sized by it
  EVENKEEL_ASSIGN_OR_RETURN(Job job, LoadJobOf(arguments.job));
  if (const absl::Status words = preprocess::CheckJob(job); !words.ok()) return NameInJob(job, words);
  const sigset_t blocked = BlockSignals();
  // Decoder processes must be forked before there are threads.
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<isolation::DecoderPool> decoders,
                            StartDecoders(arguments.isolation, job));
  telemetry::StartLogWriter();
  server::LogLibraries();
  Signals signals(blocked);
  EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<isolation::PythonPool> python,
                            StartPython(arguments.python, job, decoders.get()));
  dataset::FarReading reading = {.ahead = arguments.ahead, .unpack = arguments.unpack};
  if (reading.unpack.folder.empty()) reading.unpack.folder = arguments.cache_folder;
  if (!arguments.cache_folder.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(reading.cache,
                              dataset::DiskCache::Open(arguments.cache_folder, arguments.cache_bytes));
  }
  EVENKEEL_ASSIGN_OR_RETURN(
      std::unique_ptr<stream::Stream> stream,
      stream::OpenStream(std::move(job), python, std::move(reading), arguments.cache_folder));
  EVENKEEL_RETURN_IF_ERROR(stream::FindEnd(*stream));
  if (stream->num_steps)
    telemetry::LogEvent(telemetry::LogLevel::kInfo, "stream_ends", {{"steps", *stream->num_steps}});
  LogLeftOut(*stream);
  server::WorkerOptions options = arguments.options;
  options.python = python.get();
  options.isolated = isolation::Isolate(stream->processor, std::move(decoders), stream->job);
  options.session_idle = absl::Seconds(arguments.idle_seconds);
  options.send_timeout = absl::Seconds(arguments.send_seconds);
  options.self_test = absl::Seconds(arguments.self_test_seconds);
  options.fault_unit_delay = absl::Milliseconds(arguments.fault_unit_delay_ms);
  options.on_failure = [&signals, patience = absl::Seconds(arguments.drain_seconds) + kEnd](
                           const absl::Status& status) { signals.Fail(status, patience); };
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<server::Worker> worker,
                            server::Worker::Start(options, std::move(stream)));
  signals.BeginServing();  // before any consumer can see that it serves
  std::cout << AddressLine(*worker) << std::endl;

  if (const int number = signals.Wait(); number != 0)
    telemetry::LogEvent(telemetry::LogLevel::kInfo, "signal", {{"number", number}});
  Signals::EndWithin(absl::Seconds(arguments.drain_seconds) + kEnd);
  if (!worker->Drain(absl::Seconds(arguments.drain_seconds))) {
    telemetry::LogEvent(telemetry::LogLevel::kWarning, "drain_timeout",
                        {{"seconds", arguments.drain_seconds}});
  }
  worker->Stop();
  return signals.failure();
}

// Where consumers, metrics and probes find the worker.
void AddAddressOptions(CLI::App& command, server::WorkerOptions& options) {
  command.add_option("--listen", options.listen, "Address of the control plane; port 0 takes a free one")
      ->capture_default_str();
  command.add_option("--metrics", options.metrics,
                     "host:port for http://host:port/metrics; none if not given");
  command.add_option("--probes", options.probes,
                     "host:port for http://host:port/healthz and /readyz; none if not given");
}

// How parts travel, and to whom.
void AddDataPlaneOptions(CLI::App& command, server::WorkerOptions& options) {
  command
      .add_option(
          "--transport", options.transport,
          "Data plane: auto offers sealed memory to consumers of this machine and user, UCX if there is "
          "RDMA, and gRPC; memory offers the first alone")
      ->check(CLI::IsMember({"auto", "memory", "ucx", "grpc"}))
      ->capture_default_str();
  command.add_flag("--require-rdma", options.require_rdma, "Fail to start if the data plane is not RDMA");
  command.add_flag("--trusted-data-network", options.trusted_data_network,
                   "Offer UCX over TCP: whoever reaches its ports can write this process's memory");
  command.add_option("--data-ports", options.data_ports,
                     "Ports of UCX over TCP, e.g. 7100-7131; any free one if not given");
  command.add_option("--devices", options.devices, "UCX_NET_DEVICES of the data plane");
  command.add_option("--tls-cert", options.tls.certificate,
                     "PEM certificate chain; with --tls-key and --tls-ca");
  command.add_option("--tls-key", options.tls.key, "PEM private key");
  command.add_option("--tls-ca", options.tls.ca, "PEM authority that signs the consumers' certificates");
}

// What the worker may use of its machine.
void AddResourceOptions(CLI::App& command, ServeArguments& arguments) {
  server::WorkerOptions& options = arguments.options;
  command.add_option("--threads", options.threads, "Threads that decode and tokenise; 0: one for each CPU")
      ->capture_default_str();
  command.add_option("--memory", options.memory_bytes, "Budget for parts, in bytes or with KiB, MiB, GiB")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("4GiB");
  command.add_option("--plan-memory", options.plan_bytes, "Budget for plans")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("256MiB");
  AddIsolationOptions(command, arguments.isolation);
  AddPythonOptions(command, arguments.python);
  command.add_option("--steps-ahead", options.steps_ahead, "Steps planned ahead of need")
      ->capture_default_str();
  command.add_option("--max-sessions", options.max_sessions,
                     "Consumers at a time (default: as many as file handles allow, at most 4096)");
}

// How objects of stores are read; files are not concerned.
void AddStoreOptions(CLI::App& command, ServeArguments& arguments) {
  command
      .add_option("--fetch-ahead", arguments.ahead.budget_bytes,
                  "Budget for bytes of object stores that are requested ahead of need; 0: none are")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("256MiB");
  command.add_option("--fetch-requests", arguments.ahead.max_requests, "Requests ahead of need at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  CLI::Option* const folder = command.add_option(
      "--cache-dir", arguments.cache_folder,
      "Folder on a local disk that keeps what stores delivered; workers of a machine may share it");
  command.add_option("--cache-size", arguments.cache_bytes, "Bytes that the cache may take")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("100GiB")
      ->needs(folder);
  AddUnpackOptions(command, arguments.unpack);
}

// How long the worker waits for others, and for itself.
void AddTimeOptions(CLI::App& command, ServeArguments& arguments) {
  command.add_option("--session-idle", arguments.idle_seconds, "Seconds after which a silent session ends")
      ->capture_default_str();
  command
      .add_option("--send-timeout", arguments.send_seconds,
                  "Seconds that sending one part may take; then its session is closed and its memory is free")
      ->check(CLI::Range(1.0, 3600.0))
      ->capture_default_str();
  command
      .add_option("--self-test", arguments.self_test_seconds,
                  "Seconds between tests of this worker's control plane; after six failures in a row it ends "
                  "with an error; 0: none")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command
      .add_option("--drain-timeout", arguments.drain_seconds, "Seconds that SIGTERM waits for accepted work")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
}

void AddFaultOptions(CLI::App& command, ServeArguments& arguments) {
  server::WorkerOptions& options = arguments.options;
  const std::string faults = "For tests";
  command
      .add_option("--fault-unit-delay-ms", arguments.fault_unit_delay_ms,
                  "Every item and sample takes this long")
      ->group(faults);
  command
      .add_option("--fault-fail-every", options.fault_fail_every,
                  "Every n-th item or sample fails its attempt")
      ->group(faults);
  command.add_flag("--fault-deaf", options.fault_deaf, "The control plane accepts no connection")
      ->group(faults);
}

void AddOptions(CLI::App& command, ServeArguments& arguments) {
  AddJobOptions(command, arguments.job);
  AddAddressOptions(command, arguments.options);
  AddDataPlaneOptions(command, arguments.options);
  AddResourceOptions(command, arguments);
  AddStoreOptions(command, arguments);
  AddTimeOptions(command, arguments);
  command.add_flag("--verbose", arguments.verbose, "Also log debug events");
  AddFaultOptions(command, arguments);
}

}  // namespace

void AddServeCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("serve", kServeDescription);
  command->footer(
      "Prints one JSON line with its address to stdout once it listens; logs are JSON lines on stderr.\n"
      "SIGTERM: health becomes NOT_SERVING, accepted work is finished, exit 0. A second one ends it at "
      "once.\n"
      "Without certificates only loopback addresses are served (INSECURE).");
  auto arguments = std::make_shared<ServeArguments>();
  AddOptions(*command, *arguments);
  command->callback([arguments, exit_code] {
    const absl::Status status = Serve(*arguments);
    (void)telemetry::FlushLog(absl::Seconds(2));
    *exit_code = Report(status);
  });
}

}  // namespace evenkeel::cli
