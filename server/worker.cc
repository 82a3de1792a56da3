// Puts a worker together: stream, planner, pool, sessions, transports, gRPC server, probes and metrics; and
// one housekeeping thread that measures, sweeps, and notices when the process cannot serve any longer.
#include "server/worker.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cpu.h"
#include "core/failure.h"
#include "core/file_limit.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "dataset/source/store_source.h"
#include "server/acceptor.h"
#include "server/handle_plan.h"
#include "server/http_responder.h"
#include "server/listener.h"
#include "server/metrics_page.h"
#include "server/part_metrics.h"
#include "server/self_test.h"
#include "server/session_table.h"
#include "server/step_compiler.h"
#include "server/step_planner.h"
#include "server/worker_service.h"
#include "stream/part_builder.h"
#include "telemetry/event_log.h"
#include "telemetry/metrics.h"
#include "transport/factory.h"
#include "transport/ports.h"

namespace evenkeel::server {
namespace {

constexpr absl::Duration kHousekeeping = absl::Seconds(1);
constexpr absl::Duration kShutdown = absl::Seconds(2);
constexpr absl::Duration kLongestPause =
    absl::Minutes(2);  // of the housekeeping thread, before /healthz fails
// Upper bounds of options, far above useful values: they catch negative numbers and wrong units.
constexpr uint32_t kMaxThreads = 4096;
constexpr uint64_t kMaxBytes = 1ull << 50;
constexpr uint32_t kMaxStepsAhead = 256;
// Consecutive failed self-tests. A process that was stopped for a while fails one.
constexpr uint32_t kFailuresToUnready = 3, kFailuresToEnd = 6;
constexpr absl::Duration kLongestIdle = absl::Hours(24);
constexpr absl::Duration kLongestSend = absl::Hours(1);

bool IsWildcard(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "0.0.0.0" || host == "[::]" || host == "*";
}

// Where RDMA is required, nothing else is offered.
bool OffersMemory(const WorkerOptions& options) {
  return options.transport == "memory" || (options.transport == "auto" && !options.require_rdma);
}

// The share of --memory that copies of parts in sealed memory may take.
uint64_t CopiedBytes(const WorkerOptions& options) {
  constexpr uint64_t kMaxCopiedBytes = 256 << 20;
  return OffersMemory(options) ? std::min(options.memory_bytes / 8, kMaxCopiedBytes) : 0;
}

PartPool::Options PoolOptions(const WorkerOptions& options) {
  PartPool::Options pool{.budget_bytes = options.memory_bytes - CopiedBytes(options),
                         .kept_bytes = options.memory_bytes / 8,
                         .progress_interval = options.progress_interval,
                         .fault_unit_delay = options.fault_unit_delay,
                         .fault_fail_every = options.fault_fail_every};
  if (options.isolated != nullptr) pool.shared_memory = &options.isolated->memory();
  pool.num_threads =
      options.threads != 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  return pool;
}

// Refuses values that would not fail later but do something unintended: a number that was meant to be
// negative, or a timeout that never passes.
absl::Status CheckOptions(const WorkerOptions& options) {
  const auto refuse = [](const auto&... why) { return absl::InvalidArgumentError(absl::StrCat(why...)); };
  if (options.threads > kMaxThreads) {
    return refuse("--threads must be at most ", kMaxThreads, ", is ", options.threads);
  }
  if (options.memory_bytes > kMaxBytes) {
    return refuse("--memory must be at most 1 PiB, is ", options.memory_bytes, " bytes");
  }
  if (options.plan_bytes > kMaxBytes) {
    return refuse("--plan-memory must be at most 1 PiB, is ", options.plan_bytes, " bytes");
  }
  if (options.steps_ahead > kMaxStepsAhead) {
    return refuse("--steps-ahead must be at most ", kMaxStepsAhead, ", is ", options.steps_ahead);
  }
  if (!(options.send_timeout >= absl::Seconds(1) && options.send_timeout <= kLongestSend)) {
    return refuse("--send-timeout must be from 1 s to ", absl::FormatDuration(kLongestSend), ", is ",
                  absl::FormatDuration(options.send_timeout));
  }
  if (!(options.session_idle >= absl::Seconds(1) && options.session_idle <= kLongestIdle)) {
    return refuse("--session-idle must be from 1 s to ", absl::FormatDuration(kLongestIdle), ", is ",
                  absl::FormatDuration(options.session_idle));
  }
  return absl::OkStatus();
}

// The global ranks that take part in any phase.
std::set<uint32_t> RanksOf(const Job& job) {
  std::set<uint32_t> ranks;
  for (const PhaseSpec& phase : job.phases) ranks.insert(phase.ranks.begin(), phase.ranks.end());
  return ranks;
}

// Answers the probes from flags that the worker keeps up to date.
class Probes {
 public:
  // Errors of Listen.
  absl::Status Start(const std::string& address) {
    EVENKEEL_ASSIGN_OR_RETURN(
        responder_,
        HttpResponder::Start("--probes", address, [this](std::string_view path) { return Answer(path); }));
    return absl::OkStatus();
  }
  void Stop() { responder_.reset(); }
  std::string address() const { return responder_ == nullptr ? "" : responder_->address(); }

  std::atomic<bool> serving{false}, reachable{true}, draining{false}, failed{false};
  std::atomic<int64_t> beat_ns{0};  // last round of the housekeeping thread, by the steady clock

 private:
  HttpResponder::Reply Answer(std::string_view path) const {
    if (path == "/healthz") return Say(failed ? "failed" : Stands() ? "stalled" : "");
    if (path != "/readyz") return {.code = 404, .body = "see /healthz and /readyz\n"};
    return Say(!serving     ? "starting"
               : failed     ? "failed"
               : draining   ? "draining"
               : !reachable ? "the control plane does not answer"
                            : "");
  }
  bool Stands() const {
    return serving && absl::Nanoseconds(absl::ToUnixNanos(SteadyNow()) - beat_ns) > kLongestPause;
  }
  static HttpResponder::Reply Say(std::string_view wrong) {
    if (wrong.empty()) return {.body = "ok\n"};
    return {.code = 503, .body = std::string(wrong) + "\n"};
  }

  std::unique_ptr<HttpResponder> responder_;
};

void LogCertificates(const transport::CertificateNotice& notice) {
  using Level = transport::CertificateNotice::Level;
  const telemetry::LogLevel level = notice.level == Level::kError     ? telemetry::LogLevel::kError
                                    : notice.level == Level::kWarning ? telemetry::LogLevel::kWarning
                                                                      : telemetry::LogLevel::kInfo;
  telemetry::LogEvent(level, notice.event, {{"message", notice.message}});
}

class ServingWorker final : public Worker {
 public:
  ServingWorker(const WorkerOptions& options, std::unique_ptr<stream::Stream> stream)
      : options_(options),
        stream_(std::move(stream)),
        builder_(*stream_, &part_metrics_),
        compiler_([this](uint64_t step) { return stream_->sampler->Extend(step); }),
        planner_(std::make_unique<StepPlanner>(
            [this](uint64_t step) { return PlanNow(step); },
            StepPlanner::Options{.cache_bytes = options.plan_bytes, .steps_ahead = options.steps_ahead},
            &metrics_)),
        pool_(PoolOptions(options), &metrics_) {
    CountReplaced(&decoder_metrics_);
  }

  ~ServingWorker() override { Stop(); }

  absl::Status Begin() {
    if (absl::Status may = transport::CheckAddress(options_.tls, options_.listen); !may.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("--listen ", may.message()));
    }
    if (!options_.tls.given()) {
      telemetry::LogEvent(telemetry::LogLevel::kWarning, "insecure",
                          {{"message", transport::kInsecureWarning}});
    }
    if (!options_.probes.empty()) EVENKEEL_RETURN_IF_ERROR(probes_.Start(options_.probes));
    EVENKEEL_RETURN_IF_ERROR(CheckFirstStep());
    EVENKEEL_RETURN_IF_ERROR(MakeSources());
    EVENKEEL_RETURN_IF_ERROR(PlanTheHandles());
    EVENKEEL_RETURN_IF_ERROR(Serve());
    if (!options_.metrics.empty()) {
      EVENKEEL_ASSIGN_OR_RETURN(metrics_page_, ExposeMetrics(metrics_, options_.metrics));
    }
    std::vector<Phase> phases;
    for (const PhaseSpec& spec : stream_->job.phases) phases.push_back(spec.phase);
    metrics_.BeginPhases(phases);
    metrics_.SetStream(stream_->job.name, stream_->stream_digest.Hex(), stream_->layout_digest.Hex());
    metrics_.SetRanks(RanksOf(stream_->job).size());
    metrics_.SetDraining(false);
    Measure();
    Beat();
    probes_.serving = true;
    housekeeping_ = std::thread([this] { KeepHouse(); });
    telemetry::LogEvent(telemetry::LogLevel::kInfo, "listening",
                        {{"address", address_},
                         {"job", stream_->job.name},
                         {"stream_digest", stream_->stream_digest.Hex()},
                         {"layout_digest", stream_->layout_digest.Hex()},
                         {"transports", transports()},
                         {"instructions", CpuLevelName(AllowedCpuLevel())},
                         {"file_handles", FileLimit()},
                         {"max_sessions", handles_.max_sessions}});
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }
  std::string metrics_address() const override {
    return metrics_page_ == nullptr ? "" : metrics_page_->address();
  }
  std::string probes_address() const override { return probes_.address(); }
  std::string transports() const override {
    std::string text;
    for (const transport::Source* source : all_sources_) {
      const transport::Info info = source->info();
      absl::StrAppend(&text, text.empty() ? "" : ", ", info.name, info.detail.empty() ? "" : " ",
                      info.detail);
    }
    return text;
  }
  const stream::Stream& stream() const override { return *stream_; }

  bool Drain(absl::Duration timeout) override {
    const absl::Time deadline = SteadyNow() + timeout;
    telemetry::LogEvent(telemetry::LogLevel::kInfo, "draining",
                        {{"open_requests", uint64_t{service_->open_calls()}}});
    {
      MutexLock lock(mutex_);
      draining_ = true;
      probes_.draining = true;
      if (auto* health = server_->GetHealthCheckService(); health != nullptr) health->SetServingStatus(false);
    }
    metrics_.SetDraining(true);
    service_->SetDraining();
    const bool made = pool_.Drain(timeout);
    const bool sent = service_->WaitForCalls(std::max(absl::ZeroDuration(), deadline - SteadyNow()));
    telemetry::LogEvent(telemetry::LogLevel::kInfo, "drained", {{"complete", made && sent}});
    return made && sent;
  }

  // The order matters: callers end before what they call.
  void Stop() override {
    if (stopped_) return;
    stopped_ = true;
    if (housekeeping_.joinable()) {
      {
        MutexLock lock(mutex_);
        stopping_ = true;
        wake_.NotifyAll();
      }
      housekeeping_.join();
    }
    if (self_test_ != nullptr) self_test_->Stop();
    if (acceptor_ != nullptr) acceptor_->Stop();
    planner_->Stop();  // calls that wait for plans would delay the server's shutdown
    compiler_.Stop();
    if (grpc_source_ != nullptr) grpc_source_->Stop();
    if (server_ != nullptr)
      server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kShutdown));
    server_.reset();
    // Nobody waits for what is still being made, and a stopped process could hold it for a minute.
    if (options_.isolated != nullptr) options_.isolated->decoders().Abandon();
    if (options_.python != nullptr) options_.python->Abandon();
    pool_.Stop();
    CountReplaced(nullptr);
    if (sessions_ != nullptr) sessions_->CloseAll();
    memory_source_.reset();
    ucx_source_.reset();
    grpc_source_.reset();
  }

 private:
  // Counts decoders and Python processes that are replaced; null: no longer.
  void CountReplaced(isolation::DecoderEvents* events) {
    if (options_.isolated != nullptr) options_.isolated->decoders().CountInto(events);
    if (options_.python != nullptr) options_.python->CountInto(events);
  }
  // Plans a step. If the sampler cannot reach it yet, this fails with kNotYet and starts the work towards it.
  absl::StatusOr<stream::StepPlan> PlanNow(uint64_t step) {
    absl::StatusOr<stream::StepPlan> plan = stream::PlanStep(*stream_, step);
    if (KindOf(plan.status()) == FailureKind::kNotYet) EVENKEEL_RETURN_IF_ERROR(compiler_.Want(step));
    return plan;
  }

  // Finds errors now that the first consumer would find otherwise: an index without its shards, parts that
  // exceed the memory.
  absl::Status CheckFirstStep() {
    EVENKEEL_ASSIGN_OR_RETURN(const std::shared_ptr<const stream::StepPlan> plan, planner_->Wait(0));
    for (uint32_t rank : RanksOf(stream_->job)) {
      for (const PartName& name : builder_.PartsOf(*plan, rank)) {
        EVENKEEL_ASSIGN_OR_RETURN(const std::unique_ptr<stream::PartTask> task, builder_.Prepare(plan, name));
        EVENKEEL_RETURN_IF_ERROR(pool_.CheckFits(*task));
      }
    }
    return absl::OkStatus();
  }

  absl::Status MakeSources() {
    transport::Options options{.name = "ucx",
                               .require_rdma = options_.require_rdma,
                               .trusted_network = options_.trusted_data_network,
                               .devices = options_.devices,
                               .loopback_only = !options_.tls.given(),
                               .max_copied_bytes = CopiedBytes(options_)};
    if (!options_.data_ports.empty()) {
      EVENKEEL_ASSIGN_OR_RETURN(std::tie(options.first_port, options.last_port),
                                transport::ParsePorts(options_.data_ports));
    }
    // The address that was chosen for the control plane also selects the interface for parts.
    if (!IsWildcard(options_.listen)) options.towards = {options_.listen};
    const std::string& wanted = options_.transport;
    if (wanted != "auto" && wanted != "memory" && wanted != "ucx" && wanted != "grpc") {
      return absl::InvalidArgumentError(
          absl::StrCat("transport '", wanted, "': expected auto, memory, ucx or grpc"));
    }
    if ((wanted == "grpc" || wanted == "memory") && options_.require_rdma) {
      return absl::InvalidArgumentError(absl::StrCat("--transport ", wanted, " is ",
                                                     wanted == "grpc" ? "TCP" : "for one machine",
                                                     ", which --require-rdma excludes; use --transport ucx "
                                                     "or auto"));
    }
    const bool all = wanted == "auto";
    // Consumers look for a transport in this order, and for sealed memory in addition to another one.
    if (OffersMemory(options_)) {
      absl::StatusOr<std::unique_ptr<transport::Source>> memory = transport::MakeMemorySource(options);
      if (memory.ok()) {
        memory_source_ = *std::move(memory);
        all_sources_.push_back(memory_source_.get());
      } else if (!all) {
        return memory.status();
      } else {
        telemetry::LogEvent(telemetry::LogLevel::kInfo, "no_memory_transport",
                            {{"message", std::string(memory.status().message())}});
      }
    }
    if (wanted == "ucx" || all) {
      absl::StatusOr<std::unique_ptr<transport::Source>> ucx = transport::MakeUcxSource(options);
      if (ucx.ok()) {
        ucx_source_ = *std::move(ucx);
        all_sources_.push_back(ucx_source_.get());
      } else if (wanted == "ucx" || options_.require_rdma) {
        return ucx.status();
      } else {
        telemetry::LogEvent(telemetry::LogLevel::kInfo, "no_ucx",
                            {{"message", std::string(ucx.status().message())}});
      }
    }
    if (wanted == "grpc" || (all && !options_.require_rdma)) {
      options.name = "grpc";
      EVENKEEL_ASSIGN_OR_RETURN(grpc_source_, transport::MakeGrpcSource(options));
      all_sources_.push_back(grpc_source_.get());
    }
    for (const transport::Source* source : all_sources_) {
      const transport::Info info = source->info();
      metrics_.SetTransport(info.name, info.detail, info.is_rdma);
      telemetry::LogEvent(telemetry::LogLevel::kInfo, "transport",
                          {{"name", info.name}, {"detail", info.detail}, {"rdma", info.is_rdma}});
    }
    return absl::OkStatus();
  }

  absl::Status PlanTheHandles() {
    EVENKEEL_ASSIGN_OR_RETURN(handles_,
                              PlanHandles(FileLimit(), options_.max_sessions, ucx_source_ != nullptr));
    sessions_ = std::make_unique<SessionTable>(
        SessionTable::Options{.max_sessions = handles_.max_sessions, .idle = options_.session_idle});
    return absl::OkStatus();
  }

  // gRPC serves the connections that our own acceptor hands over (acceptor.h has the reason).
  absl::Status Serve() {
    EVENKEEL_ASSIGN_OR_RETURN(Listener listener, Listen("--listen", options_.listen));
    EVENKEEL_ASSIGN_OR_RETURN(certificates_, transport::OpenCertificates(options_.tls, LogCertificates));
    service_ = std::make_unique<WorkerService>(
        WorkerService::Uses{.stream = *stream_,
                            .planner = *planner_,
                            .builder = builder_,
                            .pool = pool_,
                            .sessions = *sessions_,
                            .metrics = metrics_,
                            .sources = all_sources_,
                            .max_part_bytes = transport::Options().max_message_bytes,
                            .send_timeout = options_.send_timeout});
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    transport::ConfigureServer(builder);
    handover_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        transport::MakeServerCredentials(certificates_));
    builder.RegisterService(service_->service());
    if (grpc_source_ != nullptr) builder.RegisterService(grpc_source_->service());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC cannot start a server");
    address_ = listener.address;
    if (auto* health = server_->GetHealthCheckService(); health != nullptr) {
      health->SetServingStatus("evenkeel.pb.Worker", true);
    }
    return Accept(std::move(listener));
  }

  absl::Status Accept(Listener listener) {
    acceptor_ = std::make_unique<Acceptor>(
        std::move(listener),
        Acceptor::Options{.max_connections = handles_.max_connections,
                          .max_of_address = std::max(1u, handles_.max_connections / 2),
                          .max_silent = handles_.max_silent,
                          .reserved_from = handles_.reserved_from,
                          .tls = options_.tls.given()},
        [this](Handle connection) {
          grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
          parameters.fd = connection.Release();
          handover_->HandleNewConnection(&parameters);
        });
    if (options_.fault_deaf) acceptor_->GoDeaf();
    if (options_.self_test > absl::ZeroDuration()) {
      self_test_ = std::make_unique<SelfTest>(
          SelfTest::Options{.target = acceptor_->dial(),
                            .credentials = transport::MakeOwnCredentials(certificates_),
                            .tls = options_.tls.given(),
                            .interval = options_.self_test});
    }
    return absl::OkStatus();
  }

  void KeepHouse() {
    MutexLock lock(mutex_);
    for (;;) {
      const absl::Time due = SteadyNow() + kHousekeeping;
      while (!stopping_ && wake_.WaitUntil(mutex_, due)) continue;
      if (stopping_) return;
      Beat();
      service_->Tick();
      if (const size_t ended = sessions_->Sweep(); ended > 0) {
        telemetry::LogEvent(telemetry::LogLevel::kInfo, "sessions_ended", {{"count", uint64_t{ended}}});
      }
      Measure();
      CountAbandoned();
      CountConnections();
      CountDroppedLogLines();
      CountStoreRequests();
      CountStoreReads();
      LookAtSelfTest();
      LookAtDecoders();
      LookAtSources();
    }
  }

  void Measure() {
    const PartPool::Stats stats = pool_.stats();
    metrics_.SetBytes(stats.bytes);
    metrics_.SetQueue(stats.queued, stats.producing, stats.ready);
    metrics_.SetSessions(sessions_->size());
    metrics_.SetConnections(acceptor_->connections());
    MeasureCertificates();
  }

  void MeasureCertificates() {
    if (certificates_ == nullptr) return;
    const transport::CertificateState state = transport::StateOf(certificates_);
    metrics_.SetCertificate(state.own.not_after - absl::Now(), !state.files.ok());
    metrics_.CountCertificateReplacements(state.replacements -
                                          std::exchange(certificate_replacements_, state.replacements));
  }

  // Without decoder processes every audio clip and video fails, and only a new process can start them.
  void LookAtDecoders() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (options_.isolated == nullptr) return;
    if (absl::Status status = options_.isolated->decoders().health(); !status.ok()) {
      SetReachable(false);
      Fail(absl::InternalError(
          absl::StrCat(status.message(), "; the worker ends so that it can be restarted")));
    }
  }

  // If no consumer can connect to a source, every consumer that chose it would get no data.
  void LookAtSources() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const transport::Source* source : all_sources_) {
      const absl::Status status = source->health();
      if (status.ok()) continue;
      SetReachable(false);
      Fail(absl::InternalError(absl::StrCat("the data plane over ", source->info().name,
                                            " can no longer be reached: ", status.message(),
                                            ". The process may have run out of file handles (ulimit -n); the "
                                            "worker ends so that it can be restarted")));
    }
  }

  void Beat() { probes_.beat_ns = absl::ToUnixNanos(SteadyNow()); }

  void CountDroppedLogLines() {
    const uint64_t dropped = telemetry::LogLinesDropped();
    metrics_.CountLogLinesDropped(dropped - std::exchange(log_lines_dropped_, dropped));
  }

  void CountStoreRequests() {
    const dataset::StoreCounts now = dataset::CountsOfStores();
    const dataset::StoreCounts before = std::exchange(store_counts_, now);
    const uint64_t failed = now.failed_requests - before.failed_requests;
    metrics_.CountStoreRequests(
        now.requests - before.requests - failed, failed, now.repeated - before.repeated,
        static_cast<double>(now.microseconds - before.microseconds) / 1e6, now.bytes - before.bytes);
  }

  void CountStoreReads() {
    const dataset::ReadCounts now = stream_->source->counts();
    const dataset::ReadCounts before = std::exchange(read_counts_, now);
    metrics_.CountStoreReads(now.ready - before.ready, now.late - before.late, now.direct - before.direct);
    metrics_.CountCacheReads(now.cache_hits - before.cache_hits, now.cache_misses - before.cache_misses,
                             now.cache_damaged - before.cache_damaged,
                             now.cache_unwritten - before.cache_unwritten);
    metrics_.SetBytesAhead(now.bytes_ahead);
  }

  void CountConnections() {
    for (int i = 0; i < telemetry::kNumRefusals; ++i) {
      const uint64_t refused = acceptor_->refused(static_cast<telemetry::Refusal>(i));
      metrics_.CountRefusedConnections(telemetry::RefusalName(static_cast<telemetry::Refusal>(i)),
                                       refused - std::exchange(refused_connections_[i], refused));
    }
  }

  // A worker that fails its self-tests becomes unready, and after more failures asks to be ended.
  void LookAtSelfTest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (self_test_ == nullptr || failed_) return;
    const uint64_t total = self_test_->total_failures();
    metrics_.CountSelfTestFailures(total - std::exchange(self_test_failures_, total));
    const uint32_t failures = self_test_->failures();
    SetReachable(failures < kFailuresToUnready);
    if (failures >= kFailuresToEnd) {
      Fail(absl::InternalError(absl::StrCat(
          "the control plane at ", address_, " does not answer calls of its own process, ", failures,
          " times in a row: ", self_test_->last_error(), "; the worker ends so that it can be restarted")));
    }
  }

  void SetReachable(bool reachable) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (std::exchange(reachable_, reachable) == reachable) return;
    probes_.reachable = reachable;
    telemetry::LogEvent(reachable ? telemetry::LogLevel::kInfo : telemetry::LogLevel::kError,
                        reachable ? "ready" : "unready", {});
    if (auto* health = server_->GetHealthCheckService(); health != nullptr && !draining_) {
      health->SetServingStatus(reachable);
    }
  }

  void Fail(const absl::Status& status) {
    if (std::exchange(failed_, true)) return;
    probes_.failed = true;
    telemetry::LogEvent(telemetry::LogLevel::kError, "worker_failed",
                        {{"message", std::string(status.message())}});
    if (options_.on_failure) options_.on_failure(status);
  }

  void CountAbandoned() {
    uint64_t abandoned = 0;
    for (const transport::Source* source : all_sources_) abandoned += source->buffers_abandoned();
    const uint64_t fresh = abandoned - std::exchange(buffers_abandoned_, abandoned);
    if (fresh == 0) return;
    metrics_.CountAbandoned(fresh);
    telemetry::LogEvent(
        telemetry::LogLevel::kError, "buffers_abandoned",
        {{"count", fresh},
         {"message",
          "the transport did not release parts after their session was closed by force; their memory counts "
          "against "
          "--memory until this process ends. Check the network card and its driver, then restart"}});
  }

  const WorkerOptions options_;
  const std::unique_ptr<stream::Stream> stream_;
  telemetry::Metrics metrics_;
  std::unique_ptr<HttpResponder> metrics_page_;
  Probes probes_;
  PartMetrics part_metrics_{&metrics_};
  DecoderMetrics decoder_metrics_{&metrics_};
  stream::PartBuilder builder_;
  StepCompiler compiler_;
  const std::unique_ptr<StepPlanner> planner_;
  PartPool pool_;
  HandlePlan handles_;
  std::unique_ptr<SessionTable> sessions_;
  std::unique_ptr<transport::Source> memory_source_;
  std::unique_ptr<transport::Source> ucx_source_;
  std::unique_ptr<transport::GrpcSource> grpc_source_;
  std::vector<transport::Source*> all_sources_;
  std::unique_ptr<WorkerService> service_;
  std::shared_ptr<transport::Certificates> certificates_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> handover_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<SelfTest> self_test_;
  std::string address_;
  bool stopped_ = false;
  // Counter values at the last report; used by the housekeeping thread alone.
  uint64_t buffers_abandoned_ = 0;
  uint64_t certificate_replacements_ = 0;
  uint64_t self_test_failures_ = 0;
  uint64_t log_lines_dropped_ = telemetry::LogLinesDropped();
  dataset::StoreCounts store_counts_ = dataset::CountsOfStores();
  dataset::ReadCounts read_counts_;
  std::array<uint64_t, telemetry::kNumRefusals> refused_connections_{};
  bool reachable_ = true, failed_ = false;

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread housekeeping_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options,
                                                      std::unique_ptr<stream::Stream> stream) {
  EVENKEEL_RETURN_IF_ERROR(CheckOptions(options));
  auto worker = std::make_unique<ServingWorker>(options, std::move(stream));
  EVENKEEL_RETURN_IF_ERROR(worker->Begin());
  return worker;
}

}  // namespace evenkeel::server
