#include "server/worker.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/cpu.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "server/event_log.h"
#include "server/metrics.h"
#include "server/part_builder.h"
#include "server/session_table.h"
#include "server/step_planner.h"
#include "server/worker_service.h"
#include "transport/factory.h"

namespace evenkeel {
namespace {

constexpr absl::Duration kHousekeeping = absl::Seconds(1);
constexpr absl::Duration kShutdown = absl::Seconds(2);
// Of what the options may ask for: far above what is of use.
constexpr uint32_t kMostThreads = 4096;
constexpr uint64_t kMostBytes = 1ull << 50;
constexpr uint32_t kMostStepsAhead = 256;
constexpr absl::Duration kLongestIdle = absl::Hours(24);

PartPool::Options PoolOptions(const WorkerOptions& options, const Stream& stream) {
  PartPool::Options pool{.budget_bytes = options.memory_bytes,
                         .kept_bytes = options.memory_bytes / 8,
                         .progress_interval = options.progress_interval,
                         .fault_unit_delay = options.fault_unit_delay,
                         .fault_fail_every = options.fault_fail_every};
  if (stream.isolated != nullptr) pool.shared_memory = &stream.isolated->memory();
  pool.num_threads =
      options.threads != 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  return pool;
}

// What would not fail but do something else: a port taken modulo 65,536, a number of steps or bytes that was
// meant to be negative, a time that never ends.
absl::Status CheckOptions(const WorkerOptions& options) {
  const auto refuse = [](const auto&... why) { return absl::InvalidArgumentError(absl::StrCat(why...)); };
  if (!absl::StartsWith(options.listen, "unix:")) {
    const size_t colon = options.listen.rfind(':');
    uint32_t port = 0;
    if (colon == std::string::npos || !absl::SimpleAtoi(options.listen.substr(colon + 1), &port) ||
        port > 65535) {
      return refuse("--listen '", options.listen, "' is not host:port, with a port from 0 to 65535");
    }
  }
  if (options.threads > kMostThreads) {
    return refuse("--threads must be at most ", kMostThreads, ", is ", options.threads);
  }
  if (options.memory_bytes > kMostBytes) {
    return refuse("--memory must be at most 1 PiB, is ", options.memory_bytes, " bytes");
  }
  if (options.plan_bytes > kMostBytes) {
    return refuse("--plan-memory must be at most 1 PiB, is ", options.plan_bytes, " bytes");
  }
  if (options.steps_ahead > kMostStepsAhead) {
    return refuse("--steps-ahead must be at most ", kMostStepsAhead, ", is ", options.steps_ahead);
  }
  if (!(options.session_idle >= absl::Seconds(1) && options.session_idle <= kLongestIdle)) {
    return refuse("--session-idle must be from 1 s to ", absl::FormatDuration(kLongestIdle), ", is ",
                  absl::FormatDuration(options.session_idle));
  }
  return absl::OkStatus();
}

// "host:port" with the port that was really taken.
std::string WithPort(const std::string& address, int port) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || address.rfind("unix:", 0) == 0) return address;
  return absl::StrCat(address.substr(0, colon), ":", port);
}

class ServingWorker final : public Worker {
 public:
  ServingWorker(const WorkerOptions& options, std::unique_ptr<Stream> stream)
      : options_(options),
        stream_(std::move(stream)),
        builder_(*stream_, &metrics_),
        planner_(std::make_unique<StepPlanner>(
            [this](uint64_t step) { return PlanStep(*stream_, step); },
            StepPlanner::Options{.cache_bytes = options.plan_bytes, .steps_ahead = options.steps_ahead},
            &metrics_)),
        pool_(PoolOptions(options, *stream_), &metrics_),
        sessions_({.max_sessions = options.max_sessions, .idle = options.session_idle}) {
    if (stream_->isolated != nullptr) stream_->isolated->decoders().CountInto(&metrics_);
  }

  ~ServingWorker() override { Stop(); }

  absl::Status Begin() {
    EVENKEEL_RETURN_IF_ERROR(transport::CheckAddress(options_.tls, options_.listen));
    if (!options_.tls.given()) {
      LogEvent(LogLevel::kWarning, "insecure", {{"message", transport::kInsecureWarning}});
    }
    EVENKEEL_RETURN_IF_ERROR(CheckFirstStep());
    EVENKEEL_RETURN_IF_ERROR(MakeSources());
    EVENKEEL_RETURN_IF_ERROR(Listen());
    if (!options_.metrics.empty()) EVENKEEL_RETURN_IF_ERROR(metrics_.Expose(options_.metrics));
    metrics_.SetStream(stream_->job.name, stream_->stream_digest.Hex(), stream_->layout_digest.Hex());
    metrics_.SetDraining(false);
    housekeeping_ = std::thread([this] { KeepHouse(); });
    LogEvent(LogLevel::kInfo, "listening",
             {{"address", address_},
              {"job", stream_->job.name},
              {"stream_digest", stream_->stream_digest.Hex()},
              {"layout_digest", stream_->layout_digest.Hex()},
              {"transports", transports()},
              {"instructions", CpuLevelName(AllowedCpuLevel())}});
    return absl::OkStatus();
  }

  std::string address() const override { return address_; }
  std::string metrics_address() const override {
    return options_.metrics.empty() ? "" : WithPort(options_.metrics, metrics_.port());
  }
  std::string transports() const override {
    std::string text;
    for (const transport::Source* source : all_sources_) {
      const transport::Info info = source->info();
      absl::StrAppend(&text, text.empty() ? "" : ", ", info.name, info.detail.empty() ? "" : " ",
                      info.detail);
    }
    return text;
  }
  const Stream& stream() const override { return *stream_; }

  bool Drain(absl::Duration timeout) override {
    const absl::Time deadline = SteadyNow() + timeout;
    LogEvent(LogLevel::kInfo, "draining", {{"open_requests", uint64_t{service_->open_calls()}}});
    if (auto* health = server_->GetHealthCheckService(); health != nullptr) health->SetServingStatus(false);
    metrics_.SetDraining(true);
    service_->SetDraining();
    const bool made = pool_.Drain(timeout);
    const bool sent = service_->WaitForCalls(std::max(absl::ZeroDuration(), deadline - SteadyNow()));
    LogEvent(LogLevel::kInfo, "drained", {{"complete", made && sent}});
    return made && sent;
  }

  // The order matters: who calls ends before who is called.
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
    planner_->Stop();  // calls that wait for plans would hold up the server's end
    if (grpc_source_ != nullptr) grpc_source_->Stop();
    if (server_ != nullptr)
      server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kShutdown));
    server_.reset();
    pool_.Stop();
    if (stream_->isolated != nullptr) stream_->isolated->decoders().CountInto(nullptr);
    sessions_.CloseAll();
    ucx_source_.reset();
    grpc_source_.reset();
  }

 private:
  // Finds now what would else be found by the first consumer: an index without shards, parts beyond the
  // memory.
  absl::Status CheckFirstStep() {
    EVENKEEL_ASSIGN_OR_RETURN(const std::shared_ptr<const StepPlan> plan, planner_->Wait(0));
    std::set<uint32_t> ranks;
    for (const PhaseSpec& phase : stream_->job.phases) ranks.insert(phase.ranks.begin(), phase.ranks.end());
    for (uint32_t rank : ranks) {
      for (const PartName& name : builder_.PartsOf(*plan, rank)) {
        EVENKEEL_ASSIGN_OR_RETURN(const std::unique_ptr<PartTask> task, builder_.Prepare(plan, name));
        EVENKEEL_RETURN_IF_ERROR(pool_.CheckFits(*task));
      }
    }
    return absl::OkStatus();
  }

  absl::Status MakeSources() {
    transport::Options options{.name = "ucx",
                               .require_rdma = options_.require_rdma,
                               .shared_memory = options_.shared_memory,
                               .devices = options_.devices,
                               .loopback_only = !options_.tls.given()};
    const std::string& wanted = options_.transport;
    if (wanted != "auto" && wanted != "ucx" && wanted != "grpc") {
      return absl::InvalidArgumentError(absl::StrCat("transport '", wanted, "': expected auto, ucx or grpc"));
    }
    if (wanted == "grpc" && options_.require_rdma) {
      return absl::InvalidArgumentError(
          "--transport grpc is TCP, which --require-rdma excludes; take --transport ucx or auto");
    }
    if (wanted != "grpc") {
      absl::StatusOr<std::unique_ptr<transport::Source>> ucx = transport::MakeUcxSource(options);
      if (ucx.ok()) {
        ucx_source_ = *std::move(ucx);
        all_sources_.push_back(ucx_source_.get());
      } else if (wanted == "ucx" || options_.require_rdma || options_.shared_memory) {
        return ucx.status();
      } else {
        LogEvent(LogLevel::kWarning, "no_ucx", {{"message", std::string(ucx.status().message())}});
      }
    }
    if (wanted != "ucx" && !options_.require_rdma) {
      options.name = "grpc";
      options.shared_memory = false;
      EVENKEEL_ASSIGN_OR_RETURN(grpc_source_, transport::MakeGrpcSource(options));
      all_sources_.push_back(grpc_source_.get());
    }
    for (const transport::Source* source : all_sources_) {
      const transport::Info info = source->info();
      metrics_.SetTransport(info.name, info.detail, info.is_rdma);
      LogEvent(LogLevel::kInfo, "transport",
               {{"name", info.name}, {"detail", info.detail}, {"rdma", info.is_rdma}});
    }
    return absl::OkStatus();
  }

  absl::Status Listen() {
    EVENKEEL_ASSIGN_OR_RETURN(auto credentials, transport::MakeServerCredentials(options_.tls));
    service_ = std::make_unique<WorkerService>(
        WorkerService::Uses{.stream = *stream_,
                            .planner = *planner_,
                            .builder = builder_,
                            .pool = pool_,
                            .sessions = sessions_,
                            .metrics = metrics_,
                            .sources = all_sources_,
                            .max_part_bytes = transport::Options().max_message_bytes,
                            .send_timeout = options_.send_timeout});
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    transport::ConfigureServer(builder);
    int port = 0;
    builder.AddListeningPort(options_.listen, credentials, &port);
    builder.RegisterService(service_->service());
    if (grpc_source_ != nullptr) builder.RegisterService(grpc_source_->service());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen at ", options_.listen, ": is the port taken?"));
    }
    address_ = WithPort(options_.listen, port);
    if (auto* health = server_->GetHealthCheckService(); health != nullptr) {
      health->SetServingStatus("evenkeel.pb.Worker", true);
    }
    return absl::OkStatus();
  }

  void KeepHouse() {
    MutexLock lock(mutex_);
    for (;;) {
      const absl::Time due = SteadyNow() + kHousekeeping;
      while (!stopping_ && wake_.WaitUntil(mutex_, due)) continue;
      if (stopping_) return;
      service_->Tick();
      if (const size_t ended = sessions_.Sweep(); ended > 0) {
        LogEvent(LogLevel::kInfo, "sessions_ended", {{"count", uint64_t{ended}}});
      }
      const PartPool::Stats stats = pool_.stats();
      metrics_.SetBytes(stats.bytes);
      metrics_.SetQueue(stats.queued, stats.producing, stats.ready);
      metrics_.SetSessions(sessions_.size());
      CountAbandoned();
    }
  }

  void CountAbandoned() {
    uint64_t abandoned = 0;
    for (const transport::Source* source : all_sources_) abandoned += source->buffers_abandoned();
    const uint64_t fresh = abandoned - std::exchange(buffers_abandoned_, abandoned);
    if (fresh == 0) return;
    metrics_.CountAbandoned(fresh);
    LogEvent(LogLevel::kError, "buffers_abandoned",
             {{"count", fresh},
              {"message",
               "parts were not given back when their session was closed by force; their memory is lost to "
               "--memory until this process ends. Check the network card and its driver, then restart"}});
  }

  const WorkerOptions options_;
  const std::unique_ptr<Stream> stream_;
  Metrics metrics_;
  PartBuilder builder_;
  const std::unique_ptr<StepPlanner> planner_;
  PartPool pool_;
  SessionTable sessions_;
  std::unique_ptr<transport::Source> ucx_source_;
  std::unique_ptr<transport::GrpcSource> grpc_source_;
  std::vector<transport::Source*> all_sources_;
  std::unique_ptr<WorkerService> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  bool stopped_ = false;
  uint64_t buffers_abandoned_ = 0;  // that were counted

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread housekeeping_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Start(const WorkerOptions& options,
                                                      std::unique_ptr<Stream> stream) {
  EVENKEEL_RETURN_IF_ERROR(CheckOptions(options));
  auto worker = std::make_unique<ServingWorker>(options, std::move(stream));
  EVENKEEL_RETURN_IF_ERROR(worker->Begin());
  return worker;
}

}  // namespace evenkeel
