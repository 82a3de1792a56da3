#include <signal.h>

#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/isolation.h"
#include "core/annotated_mutex.h"
#include "core/status.h"
#include "server/event_log.h"
#include "server/worker.h"

namespace evenkeel::cli {
namespace {

struct ServeArguments {
  std::string job;
  IsolationArguments isolation;
  WorkerOptions options;
  double drain_seconds = 25;
  double idle_seconds = 60;
  double fault_unit_delay_ms = 0;
  bool verbose = false;
};

// From here on SIGTERM and SIGINT wait until somebody takes them; threads and processes made later inherit
// the mask, so that Ctrl-C does not end the decoders of work that is still to be finished.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // A consumer that goes away must not end the worker.
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

// Takes the signals, on a thread of its own: while the worker starts, the first ends the process; once it
// serves, the first is what Wait returns, and the second ends the process.
class Signals {
 public:
  explicit Signals(const sigset_t& signals) {
    std::thread([signals, state = state_] {
      for (;;) {
        int number = 0;
        sigwait(&signals, &number);
        MutexLock lock(state->mutex);
        if (!state->serving || state->taken != 0) std::_Exit(kFailure);
        state->taken = number;
        state->changed.NotifyAll();
      }
    }).detach();
  }

  void BeginServing() {
    MutexLock lock(state_->mutex);
    state_->serving = true;
  }
  int Wait() {
    MutexLock lock(state_->mutex);
    while (state_->taken == 0) state_->changed.Wait(state_->mutex);
    return state_->taken;
  }

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    bool serving ABSL_GUARDED_BY(mutex) = false;
    int taken ABSL_GUARDED_BY(mutex) = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // the thread never ends
};

std::string AddressLine(const Worker& worker) {
  std::string line = R"({"address":)";
  AppendJsonString(worker.address(), line);
  line += R"(,"metrics":)";
  AppendJsonString(worker.metrics_address(), line);
  line += R"(,"transports":)";
  AppendJsonString(worker.transports(), line);
  line += R"(,"stream_digest":)";
  AppendJsonString(worker.stream().stream_digest.Hex(), line);
  line += R"(,"layout_digest":)";
  AppendJsonString(worker.stream().layout_digest.Hex(), line);
  return line + "}";
}

absl::Status Serve(const ServeArguments& arguments) {
  if (arguments.verbose) SetLogLevel(LogLevel::kDebug);
  EVENKEEL_ASSIGN_OR_RETURN(Job job, LoadJob(arguments.job));
  const sigset_t blocked = BlockSignals();
  // Before there are threads: decoder processes are forked.
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<DecoderPool> decoders, StartDecoders(arguments.isolation, job));
  Signals signals(blocked);
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, OpenStream(std::move(job)));
  Isolate(*stream, std::move(decoders));
  WorkerOptions options = arguments.options;
  options.session_idle = absl::Seconds(arguments.idle_seconds);
  options.fault_unit_delay = absl::Milliseconds(arguments.fault_unit_delay_ms);
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Worker::Start(options, std::move(stream)));
  signals.BeginServing();  // before anybody can know that it does
  std::cout << AddressLine(*worker) << std::endl;

  LogEvent(LogLevel::kInfo, "signal", {{"number", signals.Wait()}});
  if (!worker->Drain(absl::Seconds(arguments.drain_seconds))) {
    LogEvent(LogLevel::kWarning, "drain_timeout", {{"seconds", arguments.drain_seconds}});
  }
  worker->Stop();
  return absl::OkStatus();
}

void AddOptions(CLI::App& command, ServeArguments& arguments) {
  WorkerOptions& options = arguments.options;
  command.add_option("--job", arguments.job, "The job file")->required();
  command.add_option("--listen", options.listen, "Address of the control plane; port 0 takes a free one")
      ->capture_default_str();
  command.add_option("--metrics", options.metrics,
                     "host:port for http://host:port/metrics; none if not given");
  command.add_option("--transport", options.transport, "Data plane: auto offers all that work here")
      ->check(CLI::IsMember({"auto", "ucx", "grpc"}))
      ->capture_default_str();
  command.add_flag("--require-rdma", options.require_rdma,
                   "Fail to start where the data plane would not be RDMA");
  command.add_flag("--shared-memory", options.shared_memory,
                   "UCX over shared memory, for consumers on this host only; stopped peers are not noticed");
  command.add_option("--devices", options.devices, "UCX_NET_DEVICES of the data plane");
  command.add_option("--tls-cert", options.tls.certificate,
                     "PEM certificate chain; with --tls-key and --tls-ca");
  command.add_option("--tls-key", options.tls.key, "PEM private key");
  command.add_option("--tls-ca", options.tls.ca, "PEM authority that signs the consumers' certificates");
  command.add_option("--threads", options.threads, "Threads that decode and tokenise; 0: one for each CPU")
      ->capture_default_str();
  command.add_option("--memory", options.memory_bytes, "Budget for parts, in bytes or with KiB, MiB, GiB")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("4GiB");
  command.add_option("--plan-memory", options.plan_bytes, "Budget for plans")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("256MiB");
  AddIsolationOptions(command, arguments.isolation);
  command.add_option("--steps-ahead", options.steps_ahead, "Steps planned ahead of need")
      ->capture_default_str();
  command.add_option("--max-sessions", options.max_sessions, "Consumers at a time")->capture_default_str();
  command.add_option("--session-idle", arguments.idle_seconds, "Seconds after which a silent session ends")
      ->capture_default_str();
  command
      .add_option("--drain-timeout", arguments.drain_seconds, "Seconds that SIGTERM waits for accepted work")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  command.add_flag("--verbose", arguments.verbose, "Log debug events, too");
  const std::string faults = "For tests";
  command
      .add_option("--fault-unit-delay-ms", arguments.fault_unit_delay_ms,
                  "Every item and sample takes this long")
      ->group(faults);
  command
      .add_option("--fault-fail-every", options.fault_fail_every,
                  "Every n-th item or sample fails its attempt")
      ->group(faults);
}

}  // namespace

void AddServeCommand(CLI::App& app, int* exit_code) {
  CLI::App* command = app.add_subcommand("serve", "Run a worker: serve the parts of a job to its consumers");
  command->footer(
      "Prints one JSON line with its address to stdout once it listens; logs are JSON lines on stderr.\n"
      "SIGTERM: health becomes NOT_SERVING, accepted work is finished, exit 0. A second one ends it at "
      "once.\n"
      "Without certificates only loopback addresses are served (INSECURE).");
  auto arguments = std::make_shared<ServeArguments>();
  AddOptions(*command, *arguments);
  command->callback([arguments, exit_code] { *exit_code = Report(Serve(*arguments)); });
}

}  // namespace evenkeel::cli
